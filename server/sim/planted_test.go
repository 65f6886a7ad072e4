//go:build planted

package sim

import (
	"maps"
	"os"
	"os/exec"
	"slices"
	"testing"

	"github.com/signalbox-dev/signalbox/client/belief"
	"github.com/signalbox-dev/signalbox/shard"
	"github.com/signalbox-dev/signalbox/shard/leader"
)

// elsewhere are the faults that this simulation does not find, and the tests that do.
var elsewhere = map[string]struct{ dir, run string }{
	"age-ignored":    {"../../shard/leader", "TestMayAttachUnlogged"},
	"early-barrier":  {"../../shard/leader", "TestScripts"},
	"grace-at-once":  {"../../shard", "TestScripts"},
	"memory-stays":   {"../../shard", "TestBucketsMove"},
	"sweep-restarts": {"../../shard", "TestScripts"},
	"link-kept":      {"../../shard/leader", "TestScripts"},
	"epoch-kept":     {"../../shard/leader", "TestScripts"},
	"pause-counts":   {"../../shard/leader", "TestScripts"},
	"whole-timeout":  {"../../client/internal/session", "TestWindow"},
}

// passes runs the tests of another package with a fault switched on, or none.
func passes(t *testing.T, dir, run, fault string) bool {
	cmd := exec.Command("go", "test", "-count", "1", "-tags", "planted", dir, "-run", "^"+run+"$")
	cmd.Env = append(os.Environ(), "SIGNALBOX_PLANT="+fault)
	out, err := cmd.CombinedOutput()
	if _, failed := err.(*exec.ExitError); err != nil && !failed {
		t.Fatalf("%v: %s", err, out)
	}
	return err == nil
}

// TestPlantedBugsAreFound switches one fault on at a time, in the code itself.
func TestPlantedBugsAreFound(t *testing.T) {
	late := false
	bugs := map[string]*bool{"from-receipt": &late}
	maps.Copy(bugs, shard.Planted)
	maps.Copy(bugs, leader.Faults)
	maps.Copy(bugs, belief.Planted)
	for _, name := range slices.Sorted(maps.Keys(bugs)) {
		if by, ok := elsewhere[name]; ok {
			if !passes(t, by.dir, by.run, "") {
				t.Fatalf("%s in %s fails without a fault", by.run, by.dir)
			}
			if passes(t, by.dir, by.run, name) {
				t.Errorf("%-16s is not found by %s in %s", name, by.run, by.dir)
			} else {
				t.Logf("%-16s %s in %s", name, by.run, by.dir)
			}
			continue
		}
		*bugs[name] = true
		found := false
		for seed := uint64(1); seed <= 5_000 && !found; seed++ {
			if r := Run(Options{Seed: seed, CountFromReply: late}); r.Violation != "" {
				found = true
				t.Logf("%-16s seed %d: %s", name, seed, r.Violation)
			}
		}
		*bugs[name] = false
		if !found {
			t.Errorf("%-16s is not found", name)
		}
	}
}
