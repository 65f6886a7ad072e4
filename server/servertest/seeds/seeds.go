// Package seeds runs random tests: a loop over seeds, with the flags -seed and -seeds of the test
// binary. A test that fails prints its seed and the command that runs it again alone.
//
//	for seed := range seeds.Of(t, 300, 1000) {
//		r := rand.New(rand.NewPCG(seed, 1))
//		...
//	}
package seeds

import (
	"flag"
	"iter"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/server/servertest/form"
)

var (
	alone = flag.Uint64("seed", 0, "of random tests: run this seed alone")
	count = flag.Uint64("seeds", 0, "of random tests: how many seeds to run; 0 is as many as the test says")
)

// more is how long a test goes on beyond its own seeds in form long.
const more = time.Minute

// Of yields the seeds 1 to n, to full in form full, or those that the flags choose. In form long it
// goes on for a minute more. It ends with the first seed that fails the test.
func Of(t testing.TB, n, full uint64) iter.Seq[uint64] {
	t.Helper()
	if form.Is(form.Full) {
		n = full
	}
	if *count > 0 {
		n = *count
	}
	return func(yield func(uint64) bool) {
		seed := uint64(1)
		defer func() { // also when the test ends with Fatal
			if t.Failed() {
				t.Logf("seed %d: run it again with\n\tgo test %s -run '^%s$' -seed=%d", seed, pkg(), t.Name(), seed)
			}
		}()
		if *alone > 0 {
			seed = *alone
			yield(seed)
			return
		}
		for end := time.Now().Add(more); ; seed++ {
			if !yield(seed) || t.Failed() || seed >= n && (Chosen() || !form.Is(form.Long) || time.Now().After(end)) {
				return
			}
		}
	}
}

// Chosen reports whether flags choose the seeds. A test does not then look whether its seeds
// together met all that they should.
func Chosen() bool { return *alone+*count > 0 }

// pkg is the path of the package under test.
func pkg() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "."
	}
	return strings.TrimSuffix(info.Path, ".test")
}
