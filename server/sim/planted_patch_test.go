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

// patch is a fault that is put into a file of the code while a test is built, and the test that
// finds it.
type patch struct {
	name, file, old, new, dir, run string
	// histories is a pattern of faults. The test is that of the checked histories then, and needs
	// root.
	histories string
}

var patches = []patch{
	{
		"former-unsaved", "shard/record.go",
		"uint64(len(n.formerGraces)))\n\tfor _, f := range n.formerGraces {", "0)\n\tfor _, f := range n.formerGraces[:0] {",
		"shard", "TestEveryFieldIsKept", "",
	},
	{
		"open-unsaved", "shard/record.go",
		"uint64(len(t.open)))\n\tfor _, o := range t.open {", "0)\n\tfor _, o := range t.open[:0] {",
		"shard", "TestEveryFieldIsKept", "",
	},
	{
		"ending-unsaved", "shard/record.go",
		"uint64(len(m.ending)))\n\tfor _, p := range m.ending {", "0)\n\tfor _, p := range m.ending[:0] {",
		"shard", "TestEveryFieldIsKept", "",
	},
	{
		"dropped-unsaved", "shard/record.go",
		"uint64(len(m.dropped)))\n\tlast := uint64(0)\n\tfor _, id := range m.dropped {", "0)\n\tlast := uint64(0)\n\tfor _, id := range m.dropped[:0] {",
		"shard", "TestEveryFieldIsKept", "",
	},
	{
		"floor-unrestored", "shard/restore.go",
		"n.graceFloor, n.graceFloorAt = r.uvarint(), r.uvarint()", "n.graceFloor, n.graceFloorAt = r.uvarint(), 0*r.uvarint()",
		"shard", "TestEveryFieldIsKept", "",
	},
	{
		"restore-overflows", "shard/restore.go",
		" || s.used+e.count < s.used", "",
		"shard", "TestOverflowIsRefused", "",
	},
	{
		"import-overflows", "shard/import.go",
		"(s.waiters.n > 0 || s.used+r.count < s.used)", "s.waiters.n > 0",
		"shard", "TestOverflowIsRefused", "",
	},
	{
		"watch-after-read", "server/request_read.go",
		"if err := hub.OneShot(c.id, d.Session, d.Node, d.Name, d.Flags, d.WatchID, m.MostWatchers(d.Node)); err != nil {\n\t\treturn err\n\t}",
		`session, node, name, flags, id, most := d.Session, d.Node, append([]byte(nil), d.Name...), d.Flags, d.WatchID, m.MostWatchers(d.Node)
	time.AfterFunc(3*time.Millisecond, func() { _ = hub.OneShot(c.id, session, node, name, flags, id, most) })`,
		"server", "TestWatchBesideWrites", "",
	},
	{
		"watch-just-after-read", "server/request_read.go",
		"if err := hub.OneShot(c.id, d.Session, d.Node, d.Name, d.Flags, d.WatchID, m.MostWatchers(d.Node)); err != nil {\n\t\treturn err\n\t}",
		`session, node, name, flags, id, most := d.Session, d.Node, append([]byte(nil), d.Name...), d.Flags, d.WatchID, m.MostWatchers(d.Node)
	time.AfterFunc(0, func() { _ = hub.OneShot(c.id, session, node, name, flags, id, most) })`,
		"server", "TestWatchBesideWrites", "",
	},
	{
		"nonce-unmoved", "shard/chunk.go", "f = binary.AppendUvarint(f, s.nonce)", "f = binary.AppendUvarint(f, 0)",
		"shard", "TestEveryFieldMoves", "",
	},
	{
		"since-unimported", "shard/import.go", "timeout: r.timeout, since: r.since, data: cloneOrNil(r.data)", "timeout: r.timeout, data: cloneOrNil(r.data)",
		"shard", "TestEveryFieldMoves", "",
	},
	{
		"settled-unsaved", "shard/process/record.go", "appendNumbers(b, f.session, f.settled, f.until)", "appendNumbers(b, f.session, 0, f.until)",
		"shard/process", "TestEveryFieldIsKept", "",
	},
	{
		"report-time-unsaved", "shard/rollout/record.go", "p.seq, p.reportGen, p.reportAt)\n\tr := ", "p.seq, p.reportGen, 0)\n\tr := ",
		"shard/rollout", "TestEveryFieldIsKept", "",
	},
	{
		"detached-outlives-epoch", "shard/remote_session.go", "p.epoch, p.detached = epoch, false", "p.epoch = epoch",
		"shard", "TestDetachedStateEndsWithEpoch", "",
	},
	{
		"detached-untold", "shard/leader/remote_session.go", "if have.Tracks == 0 {", "if have.Session != ^uint64(0) {",
		"client/rollout", "TestClusterDetachedGivesUpItsID", "",
	},
	{
		"stream-never-live", "server/delivery/watch_stream.go", "s.live, s.lastPaged, s.cursor = true, nil, nil", "s.lastPaged, s.cursor = nil, nil",
		"server/delivery", "TestScripts", "",
	},
	{
		"stream-misplaced", "server/delivery/watch_stream.go", "t.streams[s.index].index = s.index\n", "\n",
		"server/delivery", "TestRaces", "",
	},
	{
		"stream-unnamed", "server/object_streams.go", "t.byName[key][filter] = append(t.byName[key][filter], s)", "t.byName[key][filter] = t.byName[key][filter][:]",
		"server", "TestProcessRounds", "",
	},
	{
		"watch-not-reopened", "client/watch.go", "st.shardWatch.stream = nil\n\tw.idle++\n\tif st.shardWatch.live {", "if st.shardWatch.live {",
		"client", "TestWatchOverRedirects", "",
	},
	{
		"change-beside-pages-lost", "client/stream.go", "st.held = append(st.held, d)", "st.held = st.held[:]",
		"client", "TestLocalCopy", "",
	},
	{
		"copy-data-stale", "client/local_copy.go", "a.version, a.data = c.version, c.data", "a.version = c.version",
		"client", "TestLocalCopy", "",
	},
	{
		"copy-owner-stale", "client/local_copy.go", "if found && sameOwner(&x.owners[i], &o) {", "if found && i >= 0 {",
		"client", "TestLocalCopy", "",
	},
	{
		"own-writes-hidden", "client/replica.go", "if !w.recent(now, grace) {\n\t\treturn true\n\t}", "if w.at.Load() >= 0 {\n\t\treturn true\n\t}",
		"client", "TestReadsOwnWrites", "",
	},
	{
		"own-writes-hidden", "client/replica.go", "if !w.recent(now, grace) {\n\t\treturn true\n\t}", "if w.at.Load() >= 0 {\n\t\treturn true\n\t}",
		"server/chaos", "TestCheckedHistories", "^SIGKILL of the leader while nothing of it arrives",
	},
}

// historyRuns is how often the checked histories are tried with a fault, for 78 s each. They find
// it when a leader is killed in the moment between two calls of a client.
const historyRuns = 5

// command is a run of the patch's test.
func (p *patch) command(t *testing.T, overlay string) *exec.Cmd {
	run := "^" + p.run + "$"
	if p.histories != "" {
		run += "/^each_instance_has_a_copy"
	}
	cmd := exec.Command("go", "test", "-count", "1", "-overlay", overlay, "./"+p.dir, "-run", run)
	if p.histories != "" {
		cmd.Env = append(os.Environ(), "SIGNALBOX_CHAOS=2", "SIGNALBOX_CHAOS_ONLY="+p.histories, "SIGNALBOX_CHAOS_KEEP="+t.TempDir())
	}
	return cmd
}

// TestPlantedPatchesAreFound builds tests with one patch at a time. Each test passes without a patch.
func TestPlantedPatchesAreFound(t *testing.T) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	whole := map[string]bool{}
	for _, p := range patches {
		t.Run(p.name+" by "+p.run, func(t *testing.T) {
			runs := 1
			if p.histories != "" {
				if os.Getuid() != 0 {
					t.Skip("the networks of the checked histories need root")
				}
				runs = historyRuns
			}
			passes := func(overlay string) bool {
				cmd := p.command(t, overlay)
				cmd.Dir = root
				out, err := cmd.CombinedOutput()
				if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) || strings.Contains(string(out), "[build failed]") || strings.Contains(string(out), "no tests to run") {
					t.Fatalf("%v: %s", err, out)
				}
				return err == nil
			}
			if test := p.dir + " " + p.run; !whole[test] {
				if !passes(overlayOf(t, root, p.file, "", "")) {
					t.Fatalf("%s in %s fails without a patch", p.run, p.dir)
				}
				whole[test] = true
			}
			overlay := overlayOf(t, root, p.file, p.old, p.new)
			for range runs {
				if !passes(overlay) {
					return
				}
			}
			t.Errorf("it is not found by %s in %s", p.run, p.dir)
		})
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
