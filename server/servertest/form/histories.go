package form

import (
	"flag"
	"iter"
	"path"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Histories chooses the histories of random tests, each of which is made from its number alone. A package with such
// tests has one as a variable, which gives its test binary the flags.
type Histories struct {
	seed  uint64
	count int
	more  time.Duration
}

// NewHistories adds the flags -seed, -histories and -more.
func NewHistories() *Histories {
	h := new(Histories)
	flag.Uint64Var(&h.seed, "seed", 0, "play the history of this number alone, or -histories from it on")
	flag.IntVar(&h.count, "histories", 0, "histories of each random test (default: its own number)")
	flag.DurationVar(&h.more, "more", Of(0, time.Minute), "how long each random test goes on with further histories")
	return h
}

// Own reports whether the tests play their own number of histories, so that what none of them met is a fault of the
// test.
func (h *Histories) Own() bool { return h.seed == 0 && h.count == 0 }

// Of yields the numbers of the histories of a test: from 1 to n, unless the flags say otherwise. It ends with the
// first that fails, and prints how to repeat it.
func (h *Histories) Of(t testing.TB, n int) iter.Seq[uint64] {
	caller, _, _, _ := runtime.Caller(1)
	name := runtime.FuncForPC(caller).Name() // <module>/<folder>.<function>
	pkg, _, _ := strings.Cut(path.Base(name), ".")
	pkg = path.Join(path.Dir(name), pkg)
	return func(yield func(uint64) bool) {
		seed, more := max(h.seed, 1), h.more
		switch {
		case h.count > 0:
			n = h.count
		case h.seed > 0:
			n, more = 1, 0
		}
		defer func() {
			if t.Failed() {
				t.Logf("history %d failed; again: go test %s -run '^%s$' -seed %d", seed, pkg,
					strings.ReplaceAll(t.Name(), "/", "$/^"), seed)
			}
		}()
		for last, until := seed+uint64(n), time.Now().Add(more); seed < last || time.Now().Before(until); seed++ {
			if !yield(seed) || t.Failed() {
				return
			}
		}
	}
}

// Checks sets how many random inputs each property of package rapid is checked with, until the test ends. The flag
// -rapid.checks goes before.
func Checks(t testing.TB, n int) {
	checks := flag.Lookup("rapid.checks")
	old := checks.Value.String()
	if old != checks.DefValue {
		return
	}
	if err := checks.Value.Set(strconv.Itoa(n)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = checks.Value.Set(old) })
}
