package seeds

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/signalbox-dev/signalbox/server/servertest/form"
)

// recorded is a test that may fail, and keeps what it logs.
type recorded struct {
	testing.TB
	failed bool
	log    string
}

func (r *recorded) Helper()                         {}
func (r *recorded) Failed() bool                    { return r.failed }
func (r *recorded) Logf(format string, args ...any) { r.log += fmt.Sprintf(format, args...) }

// TestSeeds: a test gets its seeds, and one that fails says which it was, however it ends.
func TestSeeds(t *testing.T) {
	if Chosen() || form.Is(form.Long) {
		t.Skip("the seeds are others")
	}
	var got []uint64
	for seed := range Of(t, 3, 3) {
		got = append(got, seed)
	}
	if !slices.Equal(got, []uint64{1, 2, 3}) {
		t.Errorf("got the seeds %v", got)
	}
	for name, fail := range map[string]func(){"error": func() {}, "fatal": runtime.Goexit} {
		r := &recorded{TB: t}
		done := make(chan int)
		go func() {
			seeds := 0
			defer func() { done <- seeds }()
			for seed := range Of(r, 9, 9) {
				if seeds++; seed == 2 {
					r.failed = true
					fail()
				}
			}
		}()
		want := "go test github.com/signalbox-dev/signalbox/server/servertest/seeds -run '^TestSeeds$' -seed=2"
		if n := <-done; n != 2 || !strings.Contains(r.log, want) {
			t.Errorf("%s: %d seeds were run, and the log says %q", name, n, r.log)
		}
	}
}
