//go:build planted

package sim

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

const (
	// simulatedSeeds is how many seeds the simulation tries with a fault.
	simulatedSeeds = 5_000

	// historyRuns is how often the checked histories are tried with a fault, for 78 s each. They
	// find it when a leader is killed in the moment between two calls of a client.
	historyRuns = 5
)

// TestFirstViolation stops at the first violation. It finds faults of the code in the simulation.
func TestFirstViolation(t *testing.T) {
	for seed := uint64(1); seed <= simulatedSeeds; seed++ {
		if r := Run(Options{Seed: seed}); r.Violation != "" {
			t.Fatalf("seed %d: %s", seed, r.Violation)
		}
	}
}

// command is a run of the fault's test.
func (f *plantedFault) command(t *testing.T, overlay string) *exec.Cmd {
	args := []string{"test", "-count", "1", "-timeout", "30m", "-overlay", overlay}
	run := "^" + f.run + "$"
	if f.run == "TestFirstViolation" {
		args = append(args, "-tags", "planted")
	}
	if f.histories != "" {
		run += "/^each_instance_has_a_copy"
	}
	args = append(args, "./"+f.dir, "-run", run)
	if f.histories != "" {
		args = append(args, "-args", "-minutes", "2", "-faults", f.histories, "-keep", t.TempDir())
	}
	cmd := exec.Command("go", args...)
	cmd.Env = append(os.Environ(), "SIGNALBOX_TEST=full")
	return cmd
}

// TestPlantedFaultsAreFound builds the tests with one fault at a time. Each test passes without.
func TestPlantedFaultsAreFound(t *testing.T) {
	root, err := filepath.Abs("../../..")
	if err != nil {
		t.Fatal(err)
	}
	sound := map[string]bool{"client/internal/sim TestFirstViolation": true} // make simulate runs its seeds
	for _, f := range plantedFaults {
		t.Run(f.name+" by "+f.run, func(t *testing.T) {
			runs := 1
			if f.histories != "" {
				if os.Getuid() != 0 {
					t.Skip("the networks of the checked histories need root")
				}
				runs = historyRuns
			}
			passes := func(overlay string) bool {
				cmd := f.command(t, overlay)
				cmd.Dir = root
				out, err := cmd.CombinedOutput()
				failed := (*exec.ExitError)(nil)
				if err != nil && !errors.As(err, &failed) ||
					strings.Contains(string(out), "[build failed]") ||
					strings.Contains(string(out), "no tests to run") {
					t.Fatalf("%v: %s", err, out)
				}
				if _, seed, ok := strings.Cut(string(out), "seed "); ok && err != nil {
					seed, _, _ = strings.Cut(seed, "\n")
					t.Logf("seed %s", seed)
				}
				return err == nil
			}
			if test := f.dir + " " + f.run; !sound[test] {
				if !passes(overlayOf(t, root, f.file, nil)) {
					t.Fatalf("%s in %s fails without a fault", f.run, f.dir)
				}
				sound[test] = true
			}
			overlay := overlayOf(t, root, f.file, f.edits)
			for range runs {
				if !passes(overlay) {
					return
				}
			}
			t.Errorf("it is not found by %s in %s", f.run, f.dir)
		})
	}
}
