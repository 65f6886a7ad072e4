package replica

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/lni/dragonboat/v4/statemachine"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard"
	"github.com/signalbox-dev/signalbox/shard/meta"
)

func startMeta(t *testing.T, h *Host, replica uint64, members map[uint64]string) *Meta {
	t.Helper()
	m, err := h.StartMeta(MetaConfig{Replica: replica, Members: members, SnapshotEntries: 20, CompactionOverhead: 5})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func bootstrapEntry(raft string) []byte {
	return meta.AppendCommand(nil, meta.OpID{1}, &meta.Bootstrap{
		Cluster: "test", Instance: 1, Name: "one", Address: "127.0.0.1:1", RaftAddress: raft, Tier: "default",
		Buckets: testBuckets, ReplicationFactor: 1, CanVote: true, Shards: []uint64{1},
		NodeConfig: protocol.NodeConfig{
			SelfCheckPeriod: protocol.DefaultSelfCheckPeriod, GracePeriod: protocol.DefaultGracePeriod,
			ReadConsistency: 1, AttachConsistency: 2, CountersMode: 1, MaxSessions: 1000, MaxSemaphores: 1000,
			MaxBytes: 1 << 30, MaxWaiters: 1000, MaxWatchers: 1000,
		},
	})
}

func rightsEntry(n int) []byte {
	return meta.AppendCommand(nil, meta.OpID{2, byte(n), byte(n >> 8)}, &meta.RightsPut{
		Right: meta.Right{Identity: fmt.Sprint("somebody ", n), Rights: meta.AllRights},
	})
}

func mustPropose(t *testing.T, m *Meta, entry []byte) meta.Result {
	t.Helper()
	b, err := m.Propose(timeout(t), entry)
	if err != nil {
		t.Fatal(err)
	}
	res, err := meta.DecodeResult(b)
	if err != nil {
		t.Fatal(err)
	}
	if err := res.Err(); err != nil {
		t.Fatal(err)
	}
	return res
}

func TestMetaSurvivesRestarts(t *testing.T) {
	t.Parallel()
	disk := NewMemoryDisk()
	members := map[uint64]string{1: disk.addr}
	h := openHost(t, HostConfig{Disk: disk})
	m := startMeta(t, h, 1, members)
	changed := m.Changed()
	mustPropose(t, m, bootstrapEntry(disk.addr))
	<-changed
	first := mustPropose(t, m, rightsEntry(0))
	for i := range 50 {
		mustPropose(t, m, rightsEntry(i))
	}
	if again := mustPropose(t, m, rightsEntry(0)); again.Revision != first.Revision {
		t.Errorf("a command proposed twice was answered with revision %d, then %d", first.Revision, again.Revision)
	}
	if !m.Leading() {
		t.Error("the only replica does not lead")
	}
	digest, revision := m.Digest(), metaState(m).Revision()
	closeHost(t, h)

	h = openHost(t, HostConfig{Disk: disk})
	m = startMeta(t, h, 1, members)
	if err := m.Sync(timeout(t)); err != nil {
		t.Fatal(err)
	}
	if m.Digest() != digest {
		t.Error("digest is another after the restart")
	}
	m.View(func(x *meta.Machine) {
		if !x.Bootstrapped() || x.Revision() != revision {
			t.Errorf("revision %d after the restart, was %d", x.Revision(), revision)
		}
	})
}

func metaState(m *Meta) *meta.State {
	var s meta.State
	m.View(func(x *meta.Machine) { s = x.State })
	return &s
}

// TestEntryOfANewerBinary: an entry of a format version that is not known here is not applied, and
// the host's owner is told that it cannot go on, and why.
func TestEntryOfANewerBinary(t *testing.T) {
	t.Parallel()
	if !inOwnProcess(t) {
		return
	}
	open := func() (*Host, *MemoryDisk, chan error) {
		disk, fatal := NewMemoryDisk(), make(chan error, 1)
		h, err := OpenHost(HostConfig{Disk: disk, RTT: 10 * time.Millisecond, Logger: quiet(),
			Fatal: func(err error) { fatal <- err }, CloseTimeout: 100 * time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = h.Close() })
		return h, disk, fatal
	}
	ctx, cancel := context.WithCancel(timeout(t))
	defer cancel()

	h, disk, fatal := open()
	m := startMeta(t, h, 1, map[uint64]string{1: disk.addr})
	known := bootstrapEntry(disk.addr)
	// never written by anybody: refused alike by every binary
	for _, entry := range [][]byte{nil, {0}, {meta.FormatVersion, 255}} {
		if _, err := (*metaMachine)(m).Update([]statemachine.Entry{{Index: 101, Cmd: entry}}); err != nil {
			t.Errorf("entry %v: %v", entry, err)
		}
	}
	go m.Propose(ctx, append([]byte{meta.FormatVersion + 1}, known[1:]...))
	if err := <-fatal; !errors.Is(err, meta.ErrFormat) || !strings.Contains(err.Error(), "of the meta shard: ") {
		t.Error(err)
	}
	if metaState(m).Bootstrapped() {
		t.Error("it was applied")
	}

	h, _, fatal = open()
	s, _ := startOne(t, h, nil)
	index := applied(s)
	go h.engine.ProposeRequest(h.engine.Session(1), []byte{shard.FormatVersion + 1, 0}, patience)
	if err := <-fatal; !errors.Is(err, shard.ErrFormat) || !strings.Contains(err.Error(), "of shard 1: ") {
		t.Error(err)
	}
	if now := applied(s); now < index {
		t.Errorf("entry %d is applied, and %d was", now, index)
	}
}

func TestMetaOnThreeHosts(t *testing.T) {
	t.Parallel()
	net := NewMemoryNet()
	var disks [3]*MemoryDisk
	members := make(map[uint64]string)
	for i := range disks {
		disks[i] = NewMemoryDisk()
		members[uint64(i+1)] = disks[i].addr
	}
	var hosts [3]*Host
	var metas [3]*Meta
	for i := range disks {
		hosts[i] = openHost(t, HostConfig{Disk: disks[i], Transport: net})
		metas[i] = startMeta(t, hosts[i], uint64(i+1), members)
	}
	mustPropose(t, metas[2], bootstrapEntry(disks[0].addr))
	for i := range 30 {
		mustPropose(t, metas[i%3], rightsEntry(i)) // any replica may propose
	}
	for _, m := range metas {
		if err := m.Sync(timeout(t)); err != nil {
			t.Fatal(err)
		}
		if m.Digest() != metas[0].Digest() {
			t.Error("digests differ")
		}
	}
	eventually(t, "a replica to know its leader", func() bool { return metas[0].LeaderReplica() != 0 })
	l := int(metas[0].LeaderReplica() - 1)
	closeHost(t, hosts[l])
	o := (l + 1) % 3
	mustPropose(t, metas[o], rightsEntry(99))
	if _, err := metas[l].Propose(timeout(t), rightsEntry(100)); protocol.StatusOf(err) != protocol.StatusUnavailable {
		t.Errorf("a closed replica says %v", err)
	}
	if err := metas[l].Sync(timeout(t)); protocol.StatusOf(err) != protocol.StatusUnavailable {
		t.Errorf("a closed replica says %v", err)
	}

	// Without a majority nothing is decided, and the caller's patience decides.
	closeHost(t, hosts[o])
	left := metas[3-l-o]
	ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer cancel()
	if _, err := left.Propose(ctx, rightsEntry(101)); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("without a majority: %v", err)
	}
	if err := left.Sync(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("without a majority: %v", err)
	}
}

// The meta shard's members change as those of any other.
func TestMetaMembers(t *testing.T) {
	t.Parallel()
	net := NewMemoryNet()
	var hosts []*Host
	for range 3 {
		hosts = append(hosts, openHost(t, HostConfig{Transport: net, Disk: NewMemoryDisk()}))
	}
	ctx := timeout(t)
	metas := []*Meta{startMeta(t, hosts[0], 1, map[uint64]string{1: hosts[0].RaftAddress()})}
	mustPropose(t, metas[0], bootstrapEntry(hosts[0].RaftAddress()))
	for i := range 30 {
		mustPropose(t, metas[0], rightsEntry(i)) // more than is kept in the log: the others get a snapshot
	}
	change := func(fn func(m Membership) error) {
		t.Helper()
		for end := time.Now().Add(patience); ; { // again while there is no leader, or it was not told what became of it
			m, err := hosts[0].Members(ctx, MetaShard)
			if err == nil {
				err = fn(m)
			}
			if err == nil {
				return
			}
			st := protocol.StatusOf(err)
			if st != protocol.StatusUnavailable && st != protocol.StatusAborted || time.Now().After(end) {
				t.Fatal(err)
			}
		}
	}
	for i := 1; i < 3; i++ {
		id := uint64(i + 1)
		change(func(m Membership) error {
			return hosts[0].AddNonVoting(ctx, MetaShard, id, hosts[i].RaftAddress(), m.ConfigChange)
		})
		x, err := hosts[i].StartMeta(MetaConfig{Replica: id, Join: true})
		if err != nil {
			t.Fatal(err)
		}
		metas = append(metas, x)
		if err := caughtUp(hosts[i], ctx, MetaShard); err != nil {
			t.Fatal(err)
		}
		change(func(m Membership) error { return hosts[0].Promote(ctx, MetaShard, id, m.ConfigChange) })
	}
	for i := range 30 {
		mustPropose(t, metas[i%3], rightsEntry(100+i))
	}
	to := (metas[0].LeaderReplica() % 3) + 1
	if err := hosts[0].Transfer(ctx, MetaShard, to, 0); err != nil &&
		protocol.StatusOf(err) != protocol.StatusAborted {
		t.Fatal(err)
	}
	for i := range 3 {
		mustPropose(t, metas[i], rightsEntry(200+i))
	}
	for i, m := range metas {
		if err := m.Sync(ctx); err != nil {
			t.Fatal(err)
		}
		if m.Digest() != metas[0].Digest() {
			t.Error("digests differ")
		}
		if r := hosts[i].Report(); len(r) != 1 || r[0].Shard != MetaShard ||
			r[0].Role != RoleVoter || r[0].Applied == 0 {
			t.Errorf("report is %+v", r)
		}
	}
	change(func(m Membership) error { return hosts[0].Remove(ctx, MetaShard, 3, m.ConfigChange) })
	mustPropose(t, metas[0], rightsEntry(300))
}
