package replica

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// TestSnapshotOfAMovedFolder: a folder that was moved since its snapshot was saved still gives it
// to a replica that joins.
func TestSnapshotOfAMovedFolder(t *testing.T) {
	t.Parallel()
	net, at := NewMemoryNet(), t.TempDir()
	was, is := filepath.Join(at, "was"), filepath.Join(at, "is")
	compact := func(c *ShardConfig) { c.SnapshotEntries, c.CompactionOverhead = 1_000_000, 1 }
	h := openHost(t, HostConfig{Dir: was, RaftAddress: "moved:1", Transport: net})
	s, r := startOne(t, h, compact)
	populate(t, s)
	c := newCaller(t, s, r, 1, 60_000)
	for i := range 20 {
		c.mustCreate(fmt.Sprint(i))
	}
	if _, err := h.SnapshotNow(timeout(t), 1); err != nil {
		t.Fatal(err)
	}
	c.mustCreate("behind")
	closeHost(t, h)
	if err := os.Rename(was, is); err != nil {
		t.Fatal(err)
	}

	h = openHost(t, HostConfig{Dir: is, RaftAddress: "moved:1", Transport: net})
	s, _ = startOne(t, h, compact)
	m, err := h.Members(timeout(t), 1)
	if err != nil {
		t.Fatal(err)
	}
	disk := NewMemoryDisk()
	if err := h.AddNonVoting(timeout(t), 1, 2, disk.addr, m.ConfigChange); err != nil {
		t.Fatal(err)
	}
	other := openHost(t, HostConfig{Disk: disk, Transport: net})
	joined, err := other.StartShard(ShardConfig{ID: 1, Replica: 2, Join: true, Sink: newRecorder(t)})
	if err != nil {
		t.Fatal(err)
	}
	if err := caughtUp(other, timeout(t), 1); err != nil {
		t.Fatal(err)
	}
	if joined.Stats().Restores == 0 {
		t.Error("it was not restored from the snapshot")
	}
	if !exists(t, joined, "7") {
		t.Error("what the snapshot has is not there")
	}
	eventually(t, "the replicas to be equal", func() bool { return joined.Digest() == s.Digest() })
}
