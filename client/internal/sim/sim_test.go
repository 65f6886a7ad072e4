package sim

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/server/servertest/form"
)

var (
	seeds = flag.Uint64("seeds", 0, "how many seeds to run; 0: as many as the form of the run asks for")
	seed  = flag.Uint64("seed", 0, "run this one alone, and if it fails look for the least that fails")
	first = flag.Uint64("first", 1, "the first of the seeds")
)

// rareEvents must have happened, each at least once in twenty runs, for a run of many seeds to mean
// anything.
var rareEvents = []string{
	"deposed", "cut", "pong", "proposed 129", "proposed 130", "proposed 131", "refused batch", "barrier failed",
	"moved", "detached by the server", "granted later", "granted", "transferred", "preempted", "slots", "ended at its bound", "ended at the client's bound",
	"expired", "stopped", "stop sent", "expired at the client", "attached again", "relaxed attach", "remote session released",
	"not bound", "restored", "restore refused", "taken over", "shard removed", "steady", "synced", "interrupted", "watched change", "stream cut by the server",
}

// formSeeds is how many seeds a run tries: about 20 s of them for a person.
func formSeeds() uint64 {
	switch {
	case form.Is(form.Long):
		return 10_000
	case form.Is(form.Full):
		return 1_000
	}
	return 300
}

func TestSimulate(t *testing.T) {
	if *seed != 0 {
		r := Run(Options{Seed: *seed})
		t.Logf("seed %d: %d operations, %v", *seed, r.Operations, r.Counts)
		if r.Violation != "" {
			t.Errorf("seed %d: %s", *seed, r.Violation)
			_, least := Shrink(Options{Seed: *seed}, 3_000)
			t.Logf("%d things happened in that run. With these %d alone (ms, what, to whom): %s", len(r.Events),
				len(least.Events), least.Violation)
			for _, e := range least.Events {
				t.Log("  ", e)
			}
		}
		return
	}
	n := *seeds
	if n == 0 {
		n = formSeeds()
	}
	began, said := time.Now(), time.Now()
	seen, operations, virtual, failed := map[string]int{}, 0, uint64(0), 0
	for i := range n {
		r := Run(Options{Seed: *first + i})
		operations += r.Operations
		virtual += r.At
		for k, v := range r.Counts {
			seen[k] += v
		}
		if r.Violation != "" {
			t.Errorf("seed %d: %s\nmake simulate SEED=%d", *first+i, r.Violation, *first+i)
			if failed++; failed == 5 {
				break
			}
		}
		if time.Since(said) > time.Minute {
			said = time.Now()
			fmt.Fprintf(os.Stderr, "%d seeds, %d operations, %.0f seeds a minute\n", i+1, operations,
				float64(i+1)/time.Since(began).Minutes())
		}
	}
	t.Logf("%d seeds, %d operations, %.1f virtual hours, %.0f seeds a minute", n, operations, float64(virtual)/3.6e6,
		float64(n)/time.Since(began).Minutes())
	for _, k := range slices.Sorted(maps.Keys(seen)) {
		t.Logf("%9d %s", seen[k], k)
	}
	for f := range faultsCount {
		if name := f.String(); uint64(seen[name]) < n/20 {
			t.Errorf("%q happened %d times in %d runs; the simulation does not try it", name, seen[name], n)
		}
	}
	for _, k := range rareEvents {
		if uint64(seen[k]) < n/20 {
			t.Errorf("%q happened %d times in %d runs; the simulation does not reach it", k, seen[k], n)
		}
	}
}

// TestSeedIsDeterministic: a seed is a run.
func TestSeedIsDeterministic(t *testing.T) {
	for seed := range uint64(3) {
		a, b := Run(Options{Seed: seed}), Run(Options{Seed: seed})
		if a.Sum != b.Sum || a.Operations != b.Operations || a.Violation != b.Violation || !slices.Equal(a.Events, b.Events) {
			t.Errorf("two runs of seed %d differ", seed)
		}
	}
}

// TestShrink: from a run in which pongs prove nothing, shrinking leaves little that
// is needed to see it.
func TestShrink(t *testing.T) {
	for seed := uint64(120); seed < 190; seed++ {
		o := Options{Seed: seed, PongUnasked: true}
		r := Run(o)
		if r.Violation == "" {
			continue
		}
		o, least := Shrink(o, 40)
		if least.Violation == "" || len(least.Events) > len(r.Events)*3/4 {
			t.Errorf("seed %d: of %d events %d are left: %q", seed, len(r.Events), len(least.Events), least.Violation)
		}
		if again := Run(o); again.Violation != least.Violation || again.Sum != least.Sum {
			t.Errorf("what was left says %q once, and then %q", least.Violation, again.Violation)
		}
		t.Logf("seed %d: of %d events %d are left", seed, len(r.Events), len(least.Events))
		return
	}
	t.Error("pongs proved nothing, and nothing was seen of it")
}

// TestReplacedShardIsLed: a shard that takes the place of a removed one has a leader that confirms its
// leadership, also if the first of its instances is down.
func TestReplacedShardIsLed(t *testing.T) {
	w := newWorld(Options{Seed: 1, Off: ^Faults(0)})
	w.sharing, w.clientCount = true, 0
	w.bootstrap()
	down := w.shared[0]
	down.crash()
	down.downUntil = w.now + 4*step
	w.removeShard(w.shards[2])
	w.shards[2].leader.apply(1) // the barrier waits for nothing
	for w.now < down.downUntil+2_000 {
		w.step()
	}
	if _, ok := w.shards[2].leader.leader.Fresh(); w.shards[2].id != 3+shards || !ok {
		t.Errorf("shard %d is not led", w.shards[2].id)
	}
}
