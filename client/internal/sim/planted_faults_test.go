package sim

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/signalbox-dev/signalbox/server/servertest/form"
)

// plantedFault is a change of a file of the code, and the test that finds it. The change is applied
// with go's overlay while the test is built: the code itself has no trace of it.
type plantedFault struct {
	name, file string
	edits      []string // old and new text in turn; each old text is in the file once
	dir, run   string

	// histories selects the faults of a run of the checked histories, which is the test then. It
	// needs root.
	histories string
}

// plantedFaults are all of them.
var plantedFaults = slices.Concat(
	shardFaults, leaderFaults, clientFaults, queueFaults, recordFaults, watchFaults, deliveryFaults, limitFaults, stepFaults,
	discoveryFaults, serverFaults, httpFaults, lossFaults, trustFaults,
)

// longer says in which form of its test a fault is found, where the ordinary one does not find it.
var longer = map[string]form.Form{
	"nonce-ignored": form.Long, // after 2,922 seeds
	"old-epoch":     form.Long, // after 1,101
	"pong-in-doubt": form.Long, // after 2,667
}

// TestPlantedFaultsApply: each old text is in its file once.
func TestPlantedFaultsApply(t *testing.T) {
	for name := range longer {
		if !slices.ContainsFunc(plantedFaults, func(f plantedFault) bool { return f.name == name }) {
			t.Errorf("no fault is named %s; take it from the list of those that need a longer form", name)
		}
	}
	root, err := filepath.Abs("../../..")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range plantedFaults {
		t.Run(f.name, func(t *testing.T) { overlayOf(t, root, f.file, f.edits) })
	}
}

// overlayOf writes a file's changed form, and the list that has go build it in place of the file.
func overlayOf(t *testing.T, root, file string, edits []string) (overlay string) {
	t.Helper()
	path := filepath.Join(root, filepath.FromSlash(file))
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	text := string(b)
	for i := 0; i < len(edits); i += 2 {
		if n := strings.Count(text, edits[i]); n != 1 {
			t.Fatalf("%s has %d places with %q, and one is to be changed", file, n, edits[i])
		}
		text = strings.Replace(text, edits[i], edits[i+1], 1)
	}
	dir := t.TempDir()
	changed, overlay := filepath.Join(dir, filepath.Base(path)), filepath.Join(dir, "overlay.json")
	list, err := json.Marshal(map[string]map[string]string{"Replace": {path: changed}})
	err = errors.Join(err, os.WriteFile(changed, []byte(text), 0o600), os.WriteFile(overlay, list, 0o600))
	if err != nil {
		t.Fatal(err)
	}
	return overlay
}
