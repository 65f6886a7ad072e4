//go:build planted

package sim

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// patches are faults that are put into a file of the code while a test is built, and the test that finds them.
var patches = []struct{ name, file, old, new, dir, run string }{
	{
		"former-unsaved", "shard/record.go",
		"uint64(len(n.former)))\n\tfor _, f := range n.former {", "0)\n\tfor _, f := range n.former[:0] {",
		"shard", "TestEveryFieldIsKept",
	},
	{
		"open-unsaved", "shard/record.go",
		"uint64(len(t.open)))\n\tfor _, o := range t.open {", "0)\n\tfor _, o := range t.open[:0] {",
		"shard", "TestEveryFieldIsKept",
	},
	{
		"dying-unsaved", "shard/record.go",
		"uint64(len(m.dying)))\n\tfor _, p := range m.dying {", "0)\n\tfor _, p := range m.dying[:0] {",
		"shard", "TestEveryFieldIsKept",
	},
	{
		"dropped-unsaved", "shard/record.go",
		"uint64(len(m.dropped)))\n\tlast := uint64(0)\n\tfor _, id := range m.dropped {", "0)\n\tlast := uint64(0)\n\tfor _, id := range m.dropped[:0] {",
		"shard", "TestEveryFieldIsKept",
	},
	{
		"floor-unrestored", "shard/restore.go",
		"n.floor, n.floorAt = r.uvarint(), r.uvarint()", "n.floor, n.floorAt = r.uvarint(), 0*r.uvarint()",
		"shard", "TestEveryFieldIsKept",
	},
	{
		"restore-overflows", "shard/restore.go",
		" || s.used+e.count < s.used", "",
		"shard", "TestOverflowIsRefused",
	},
	{
		"import-overflows", "shard/import.go",
		"(s.waiters.n > 0 || s.used+r.count < s.used)", "s.waiters.n > 0",
		"shard", "TestOverflowIsRefused",
	},
	{
		"watch-after-read", "server/read.go",
		"if err := hub.OneShot(c.id, d.Session, d.Node, d.Name, d.Flags, d.WatchID, m.MostWatchers(d.Node)); err != nil {\n\t\treturn err\n\t}",
		`session, node, name, flags, id, most := d.Session, d.Node, append([]byte(nil), d.Name...), d.Flags, d.WatchID, m.MostWatchers(d.Node)
	time.AfterFunc(3*time.Millisecond, func() { _ = hub.OneShot(c.id, session, node, name, flags, id, most) })`,
		"server", "TestWatchBesideWrites",
	},
	{
		"watch-just-after-read", "server/read.go",
		"if err := hub.OneShot(c.id, d.Session, d.Node, d.Name, d.Flags, d.WatchID, m.MostWatchers(d.Node)); err != nil {\n\t\treturn err\n\t}",
		`session, node, name, flags, id, most := d.Session, d.Node, append([]byte(nil), d.Name...), d.Flags, d.WatchID, m.MostWatchers(d.Node)
	time.AfterFunc(0, func() { _ = hub.OneShot(c.id, session, node, name, flags, id, most) })`,
		"server", "TestWatchBesideWrites",
	},
}

// TestPlantedPatchesAreFound builds tests with one patch at a time. Each test passes without a patch.
func TestPlantedPatchesAreFound(t *testing.T) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	whole := map[string]bool{}
	for _, p := range patches {
		run := func(overlay string) (passes bool) {
			cmd := exec.Command("go", "test", "-count", "1", "-overlay", overlay, "./"+p.dir, "-run", "^"+p.run+"$")
			cmd.Dir = root
			out, err := cmd.CombinedOutput()
			if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) || strings.Contains(string(out), "[build failed]") || strings.Contains(string(out), "no tests to run") {
				t.Fatalf("%s: %v: %s", p.name, err, out)
			}
			return err == nil
		}
		if test := p.dir + " " + p.run; !whole[test] {
			if !run(overlayOf(t, root, p.file, "", "")) {
				t.Fatalf("%s in %s fails without a patch", p.run, p.dir)
			}
			whole[test] = true
		}
		if run(overlayOf(t, root, p.file, p.old, p.new)) {
			t.Errorf("%-22s is not found by %s in %s", p.name, p.run, p.dir)
		} else {
			t.Logf("%-22s %s in %s", p.name, p.run, p.dir)
		}
	}
}

// overlayOf writes a file's patched form, and the list that has go build it in place of the file.
func overlayOf(t *testing.T, root, file, old, next string) (overlay string) {
	t.Helper()
	path := filepath.Join(root, filepath.FromSlash(file))
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	text := string(b)
	if old != "" {
		if strings.Count(text, old) != 1 {
			t.Fatalf("%s has %d places with %q, and one was to be patched", file, strings.Count(text, old), old)
		}
		text = strings.Replace(text, old, next, 1)
	}
	dir := t.TempDir()
	patched, overlay := filepath.Join(dir, filepath.Base(path)), filepath.Join(dir, "overlay.json")
	list, err := json.Marshal(map[string]map[string]string{"Replace": {path: patched}})
	if err = errors.Join(err, os.WriteFile(patched, []byte(text), 0o600), os.WriteFile(overlay, list, 0o600)); err != nil {
		t.Fatal(err)
	}
	return overlay
}
