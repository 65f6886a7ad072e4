//go:build planted

package sim

import (
	"errors"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/signalbox-dev/signalbox/server/servertest/form"
)

// historyRuns is how often the checked histories are tried with a fault, for 78 s each. They find it
// when a leader is killed in the moment between two calls of a client.
const historyRuns = 5

var inForm = flag.String("form", "", "test, full or long: see which faults this form of the tests finds; "+
	"empty: find each fault in the form that is noted for it")

// chosenForm is the form of -form; false: there is none.
func chosenForm(t *testing.T) (form.Form, bool) {
	switch *inForm {
	case "":
		return 0, false
	case "test":
		return form.Test, true
	case form.Full.String():
		return form.Full, true
	case form.Long.String():
		return form.Long, true
	}
	t.Fatalf("-form is %q; give test, full or long, or leave it out", *inForm)
	return 0, false
}

// TestFirstViolation stops at the first violation. It finds faults of the code in the simulation.
func TestFirstViolation(t *testing.T) {
	for seed := uint64(1); seed <= min(formSeeds(), 5_000); seed++ {
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

// TestPlantedFaultsAreFound builds the tests with one fault at a time. Each test passes without. A
// test that is skipped in the form of its fault finds nothing: the fault has to name a longer one.
func TestPlantedFaultsAreFound(t *testing.T) {
	root, err := filepath.Abs("../../..")
	if err != nil {
		t.Fatal(err)
	}
	sound := map[string]bool{} // make simulate runs the seeds of TestFirstViolation
	for f := form.Test; f <= form.Soak; f++ {
		sound["client/internal/sim TestFirstViolation "+f.String()] = true
	}
	chosen, counting := chosenForm(t)
	found, tried := 0, 0
	defer func() {
		if counting {
			t.Logf("form %s of the tests finds %d of %d faults", *inForm, found, tried)
		}
	}()
	for _, f := range plantedFaults {
		t.Run(f.name+" by "+f.run, func(t *testing.T) {
			runs, in := 1, f.foundIn()
			if counting {
				in = chosen
			}
			if f.histories != "" {
				if os.Getuid() != 0 {
					t.Skip("the networks of the checked histories need root")
				}
				runs = historyRuns
			}
			passes := func(overlay string) bool {
				cmd := f.command(t, overlay)
				cmd.Dir, cmd.Env = root, append(cmd.Environ(), "SIGNALBOX_TEST="+in.String())
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
			tried++
			if test := f.dir + " " + f.run + " " + in.String(); !sound[test] {
				if !passes(overlayOf(t, root, f.file, nil)) {
					t.Fatalf("%s in %s fails without a fault", f.run, f.dir)
				}
				sound[test] = true
			}
			overlay := overlayOf(t, root, f.file, f.edits)
			for range runs {
				if !passes(overlay) {
					found++
					return
				}
			}
			if in < f.foundIn() {
				t.Logf("%s in %s finds it in a longer form", f.run, f.dir)
				return
			}
			t.Errorf("it is not found by %s in %s with SIGNALBOX_TEST=%s", f.run, f.dir, in)
		})
	}
}

// foundIn is the shortest form of the fault's test that finds it.
func (f *plantedFault) foundIn() form.Form {
	if f.histories != "" {
		return form.Full
	}
	return longer[f.name]
}
