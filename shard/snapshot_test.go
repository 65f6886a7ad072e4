package shard

import (
	"bytes"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server/servertest/form"
	"github.com/signalbox-dev/signalbox/server/servertest/seeds"
)

// busyLock lets the machine go on whenever the writer of a snapshot lets go of it.
type busyLock struct {
	held bool
	idle func()
}

func (l *busyLock) Lock() { l.held = true }
func (l *busyLock) Unlock() {
	l.held = false
	l.idle()
}

// TestSnapshotWhileApplying takes snapshots in steps while batches are applied between the steps:
// what is restored must be the state at the beginning of the snapshot, and the rest of the log on
// top of it must lead to the same state as without the restart.
func TestSnapshotWhileApplying(t *testing.T) {
	rounds := form.Size(8, 12, 12)
	for seed := range seeds.Of(t, 10, 60) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			m := New(3)
			setRing(m, 3)
			m.limits = Limits{Waiters: 20, Semaphores: 15, Answers: 6}
			m.work = workLimits{deadlines: 3, sweeps: 2, releases: 12}
			x := newChurn(seed, m)
			for round := range rounds {
				for range 200 {
					x.step()
				}
				if err := x.m.Check(); err != nil {
					t.Fatal(err)
				}
				want, at := x.m.Digest(), x.index
				var tail [][]byte
				var b bytes.Buffer
				s := x.m.BeginSnapshot()
				smallSteps(s, func() {
					l := &busyLock{idle: func() {
						for range x.r.IntN(3) {
							tail = append(tail, x.step())
						}
					}}
					if round%3 == 0 { // changes before the first step, too
						l.idle()
					}
					if err := s.WriteTo(&b, l); err != nil {
						t.Fatal(err)
					}
				})
				r, err := Restore(bytes.NewReader(b.Bytes()))
				if err != nil {
					t.Fatalf("round %d: %v", round, err)
				}
				if r.Digest() != want {
					t.Fatalf("round %d: restored digest differs", round)
				}
				if err := r.Check(); err != nil {
					t.Fatal(err)
				}
				var out Events
				for i, entry := range tail {
					out.Reset()
					r.Apply(at+1+uint64(i), entry, &out)
				}
				if r.Digest() != x.m.Digest() {
					t.Fatalf("round %d: digest after the tail of %d entries differs", round, len(tail))
				}
				if at, ok := x.m.NextDeadline(); true {
					if at2, ok2 := r.NextDeadline(); at != at2 || ok != ok2 {
						t.Fatalf("next deadline %d %v, restored %d %v", at, ok, at2, ok2)
					}
				}
				if round%2 == 1 {
					x.m = r
				}
			}
		})
	}
}

// smallSteps makes a snapshot's steps so small that they end in the middle of everything.
func smallSteps(s *Snapshot, f func()) {
	old := s.stepRecords
	s.stepRecords = 1 + int(s.m.applied%20)
	f()
	s.stepRecords = old
}

func snapshotOf(t testing.TB, m *Machine) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := m.BeginSnapshot().WriteTo(&b, &sync.Mutex{}); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestSnapshotDamaged(t *testing.T) {
	x := newChurn(5, New(1))
	for range 300 {
		x.step()
	}
	good := snapshotOf(t, x.m)
	if _, err := Restore(bytes.NewReader(good)); err != nil {
		t.Fatal(err)
	}
	for cut := range len(good) {
		if cut > 300 && cut%97 != 0 {
			continue
		}
		if _, err := Restore(bytes.NewReader(good[:cut])); err == nil {
			t.Fatalf("snapshot cut at %d was taken", cut)
		}
	}
	for i := range len(good) {
		if i > 300 && i%53 != 0 {
			continue
		}
		bad := bytes.Clone(good)
		bad[i] ^= 1 << (i % 8)
		if _, err := Restore(bytes.NewReader(bad)); err == nil {
			t.Fatalf("snapshot with a flipped bit at %d was taken", i)
		}
	}
	newer := bytes.Clone(good)
	newer[introLen-1]++
	if _, err := Restore(bytes.NewReader(newer)); !errors.Is(err, ErrFormat) {
		t.Fatalf("newer format: %v", err)
	}
}

func TestSnapshotOneAtATime(t *testing.T) {
	x := newChurn(6, New(1))
	first := x.m.BeginSnapshot()
	if err := x.m.BeginSnapshot().WriteTo(&bytes.Buffer{}, &sync.Mutex{}); err == nil {
		t.Fatal("a second snapshot was written beside the first")
	}
	x.step()
	first.Close()
	if err := first.WriteTo(&bytes.Buffer{}, &sync.Mutex{}); err == nil {
		t.Fatal("a closed snapshot was written")
	}
	full := errors.New("disk is full")
	if err := x.m.BeginSnapshot().WriteTo(failingWriter{full}, &sync.Mutex{}); !errors.Is(err, full) {
		t.Fatalf("got %v", err)
	}
	if _, err := Restore(bytes.NewReader(snapshotOf(t, x.m))); err != nil {
		t.Fatal(err)
	}
}

type failingWriter struct{ err error }

func (w failingWriter) Write([]byte) (int, error) { return 0, w.err }

// TestDigest: any difference of the state shows.
func TestDigest(t *testing.T) {
	seen := map[uint64]uint64{}
	x := newChurn(9, New(1))
	for range 2000 {
		x.step()
		d := x.m.Digest()
		if at, ok := seen[d]; ok {
			t.Fatalf("states at %d and %d have the same digest", at, x.index)
		}
		seen[d] = x.index
	}
	if New(1).Digest() == New(2).Digest() {
		t.Fatal("shards of other ids have the same digest")
	}
}

// TestSnapshotLongQueue: a change at the head of a long queue sets little aside.
func TestSnapshotLongQueue(t *testing.T) {
	x := newBenchMachine(20_001)
	name := []byte("lock")
	x.begin()
	x.create(0, name, 1)
	x.commit()
	for i := range x.sessions {
		x.begin()
		x.acquire(i, name, false)
		x.commit()
	}
	want := x.m.Digest()
	s := x.m.BeginSnapshot()
	before := len(s.buf)
	x.begin()
	x.release(0, name)
	x.commit()
	if aside := len(s.buf) - before; aside > 1000 {
		t.Errorf("a release set %d bytes aside", aside)
	}
	var b bytes.Buffer
	if err := s.WriteTo(&b, &sync.Mutex{}); err != nil {
		t.Fatal(err)
	}
	r, err := Restore(&b)
	if err != nil {
		t.Fatal(err)
	}
	if r.Digest() != want {
		t.Fatal("restored digest differs")
	}
	var out protocol.DescribeReply
	if err := r.Semaphores().Describe(&protocol.Describe{Node: 1, Name: name, Flags: protocol.WithWaiters, Limit: 1},
		&out); err != nil || out.NumWaiters != 20_000 {
		t.Fatal(err, out.NumWaiters)
	}
}
