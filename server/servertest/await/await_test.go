package await

import (
	"fmt"
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

func (f *failed) Helper() {}
func (f *failed) Fatalf(format string, args ...any) {
	f.text = fmt.Sprintf(format, args...)
	panic(f)
}

func TestTrue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun, looks := time.Now(), 0
		True(t, "a second to pass", func() bool { looks++; return time.Since(begun) >= time.Second })
		if took := time.Since(begun); took > time.Second+longestPause || looks > 100 {
			t.Errorf("a state that came after 1s was seen after %v, with %d looks", took, looks)
		}
		f := &failed{TB: t}
		for want, wait := range map[string]func(){
			"waited in vain for ever": func() { True(f, "ever", func() bool { return false }) },
			"for ever; the last look has seen [1]": func() {
				Seen(f, "ever", func() ([]int, bool) { return []int{1}, false })
			},
		} {
			begun := time.Now()
			func() {
				defer func() { _ = recover() }()
				wait()
			}()
			if !strings.HasSuffix(f.text, want) || time.Since(begun) < Limit {
				t.Errorf("after %v: %q, want %q", time.Since(begun), f.text, want)
			}
		}
		if n := Seen(t, "a number", func() (int, bool) { return 7, true }); n != 7 {
			t.Errorf("saw %d", n)
		}
	})
}
