package await

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// failed is a test that a wait may fail.
type failed struct {
	testing.TB
	text string
}

func (f *failed) Helper()                           {}
func (f *failed) Fatalf(format string, args ...any) { f.text = format; panic(f) }

func TestTrue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun, looks := time.Now(), 0
		True(t, "a second to pass", func() bool { looks++; return time.Since(begun) >= time.Second })
		if took := time.Since(begun); took > time.Second+longestPause || looks > 100 {
			t.Errorf("a state that came after 1s was seen after %v, with %d looks", took, looks)
		}
		f := &failed{TB: t}
		func() {
			defer func() { _ = recover() }()
			True(f, "what never comes", func() bool { return false })
		}()
		if !strings.Contains(f.text, "waited in vain") || time.Since(begun) < Limit {
			t.Errorf("after %v: %q", time.Since(begun), f.text)
		}
	})
}
