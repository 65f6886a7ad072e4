package replica

import (
	"bytes"
	"crypto/md5"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	pb "github.com/lni/dragonboat/v4/raftpb"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard"
	"github.com/signalbox-dev/signalbox/shard/replica/engine"
	"github.com/signalbox-dev/signalbox/shard/replica/logstore"
)

// recovered makes the machine of shard 1 of a directory.
func recovered(t *testing.T, dir string) (m *shard.Machine, l RecoveredLog, err error) {
	t.Helper()
	s, err := OpenRecovery(dir, "lost:1", false, nil)
	if err != nil {
		return nil, l, err
	}
	defer func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}()
	for _, l = range s.Logs() {
		if l.Shard == 1 {
			m, err = s.Shard(timeout(t), l)
			return m, l, err
		}
	}
	t.Fatal("the shard's log is not there")
	return nil, l, nil
}

// TestRecovery: what a directory's log has is read without a leader: from the first entry, from a
// snapshot and what came behind it; and damage is told from it.
func TestRecovery(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	open := func() (*Host, *Shard, *recorder) {
		h := openHost(t, HostConfig{Dir: dir, RaftAddress: "lost:1", Transport: NewMemoryNet()})
		s, r := startOne(t, h, nil)
		return h, s, r
	}
	h, s, r := open()
	populate(t, s)
	c := newCaller(t, s, r, 1, 60_000)
	for i := range 20 {
		c.mustCreate(fmt.Sprint(i))
	}
	closeHost(t, h)
	digest, index := s.Digest(), applied(s) // a tick may have come until now
	m, l, err := recovered(t, dir)
	if err != nil || m.Digest() != digest || m.AppliedIndex() != index {
		t.Fatalf("entry %d, want %d: %v", m.AppliedIndex(), index, err)
	}
	if l.Snapshot != 0 || l.LastIndex < index || l.Committed > l.LastIndex || l.LastTerm == 0 || l.Term < l.LastTerm {
		t.Fatalf("%+v", l)
	}

	h, s, r = open()
	c = newCaller(t, s, r, 2, 60_000)
	c.mustCreate("before")
	if _, err := h.SnapshotNow(timeout(t), 1); err != nil {
		t.Fatal(err)
	}
	c.mustCreate("behind")
	closeHost(t, h)
	digest, index = s.Digest(), applied(s)
	was := l
	m, l, err = recovered(t, dir)
	if err != nil || m.Digest() != digest || m.AppliedIndex() != index {
		t.Fatalf("entry %d, want %d: %v", m.AppliedIndex(), index, err)
	}
	if l.Snapshot == 0 || !l.Newer(&was) || was.Newer(&l) {
		t.Fatalf("%+v after %+v", l, was)
	}

	elsewhere(t, dir)
	for range 2 {
		if err := engine.AdoptHostname(dir); err != nil {
			t.Fatal(err)
		}
	}
	if m, _, err = recovered(t, dir); err != nil || m.Digest() != digest {
		t.Fatal(err)
	}
	if _, err := OpenRecovery(dir, "other:1", false, nil); err == nil ||
		!strings.Contains(err.Error(), "another raft address") {
		t.Errorf("under another address: %v", err)
	}
	for _, at := range []int{0, 10, 1024, -1, 1 << 30} {
		mend := damage(t, dir, at)
		if _, _, err := recovered(t, dir); !errors.Is(err, logstore.ErrDamaged) ||
			!strings.Contains(err.Error(), "the snapshot of shard 1") {
			t.Errorf("damaged at %d: %v", at, err)
		}
		mend()
	}
	if m, _, err = recovered(t, dir); err != nil || m.Digest() != digest {
		t.Fatal(err)
	}
}

// elsewhere makes a directory one of another host.
func elsewhere(t *testing.T, dir string) {
	t.Helper()
	path := filepath.Join(dir, "dragonboat.ds")
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var record pb.RaftDataStatus
	if err := record.Unmarshal(b[8:]); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(dir, record.Hostname), filepath.Join(dir, "elsewhere")); err != nil {
		t.Fatal(err)
	}
	record.Hostname = "elsewhere"
	if b, err = record.Marshal(); err != nil {
		t.Fatal(err)
	}
	sum := md5.Sum(b)
	if err := os.WriteFile(path, append(sum[8:], b...), 0o600); err != nil {
		t.Fatal(err)
	}
}

func applied(s *Shard) (index uint64) {
	s.View(func(m *shard.Machine) { index = m.AppliedIndex() })
	return index
}

// damage changes a byte of the one snapshot, counted from the end if at is negative; beyond its end
// it cuts the file short.
func damage(t *testing.T, dir string, at int) (mend func()) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*", "*", "snapshot-part-*",
		"snapshot-1-*", "snapshot-*", "snapshot-*.gbsnap"))
	if err != nil || len(files) != 1 {
		t.Fatal(files, err)
	}
	whole, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	b := bytes.Clone(whole)
	switch {
	case at >= len(b):
		b = b[:len(b)-5]
	case at < 0:
		b[len(b)+at] ^= 1
	default:
		b[at] ^= 1
	}
	write := func(b []byte) {
		if err := os.WriteFile(files[0], b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(b)
	return func() { write(whole) }
}

// TestRecoveryReadsTheWholeLog: an entry that nobody knows to be committed, since the others were
// cut off when it was written, is read too: its answer may be out.
func TestRecoveryReadsTheWholeLog(t *testing.T) {
	t.Parallel()
	c := newCluster(t, nil)
	c.populate()
	for try := 0; ; try++ {
		lead := c.make(fmt.Sprint("agreed ", try))
		h, s, w := c.hosts[lead], c.shards[lead], c.writer
		before := lastLogged(h, c.ids[lead])
		c.net.Isolate(c.disks[lead].addr, true)
		cmd := shard.Command{Kind: shard.CmdCreate, Node: testNode, Epoch: 1,
			Body: w.createBody(fmt.Sprint("alone ", try))}
		st := s.Submit(cmd, Origin{Conn: w.conn, Request: 1 << 40, Kind: protocol.KindCreate})
		grown := false
		if st == protocol.StatusOK {
			eventually(t, "an entry in the log, or the end of the leadership", func() bool {
				grown = lastLogged(h, c.ids[lead]) > before && s.Leading()
				return grown || !s.Leading()
			})
		}
		var left *Recovery
		if grown {
			c.stop(lead)
			var err error
			if left, err = openRecovery(HostConfig{Disk: c.disks[lead]}); err != nil {
				t.Fatal(err)
			}
			l := left.Logs()[0]
			m, err := left.Shard(timeout(t), l)
			if err != nil || !hasSemaphore(m, fmt.Sprint("agreed ", try)) {
				t.Fatal("what was answered is not there: ", err)
			}
			found := hasSemaphore(m, fmt.Sprint("alone ", try)) && l.Committed < l.LastIndex
			if err := left.Close(); err != nil {
				t.Fatal(err)
			}
			if found {
				return
			}
			c.start(lead)
		}
		// The leader gave up before it wrote the entry, or only its tick is in the log.
		c.net.Isolate(c.disks[lead].addr, false)
		if try == 20 {
			t.Fatal("no entry was written by a leader alone")
		}
	}
}

// lastLogged is the index of the last entry on a replica's disk.
func lastLogged(h *Host, replica uint64) uint64 {
	l, _ := (&Recovery{host: h}).readLog(1, replica)
	return l.LastIndex
}

func hasSemaphore(m *shard.Machine, name string) bool {
	var d protocol.DescribeReply
	return m.Semaphores().Describe(&protocol.Describe{Node: testNode, Name: []byte(name)}, &d) == nil
}
