package process

import (
	"slices"
	"testing"

	"github.com/signalbox-dev/signalbox/protocol"
)

// workload are members that do what they are told at once, and lose nothing.
type workload struct {
	t      *testing.T
	p      *Process
	at     Now
	living map[uint64]bool
	open   map[uint64]uint64 // session -> epoch that it prepared
	events int
	silent map[uint64]bool       // these take in what they are told and confirm nothing
	stopAt protocol.ProcessPhase // nobody confirms anything from this phase on
}

func newWorkload(t *testing.T, o protocol.ProcessOptions) *workload {
	p, err := New(Now{}, 0, o)
	if err != nil {
		t.Fatal(err)
	}
	return &workload{t: t, p: p, living: map[uint64]bool{}, open: map[uint64]uint64{}, silent: map[uint64]bool{}}
}

func (c *workload) must(err error) {
	c.t.Helper()
	if err != nil {
		c.t.Fatal(err)
	}
}

// entry is one log entry with calls, and then those that follow from it.
func (c *workload) entry(calls func(out *Out)) {
	var out Out
	calls(&out)
	for {
		c.p.Tick(c.at, &out)
		c.must(c.p.Check())
		events := slices.Clone(out.Events)
		out.Reset()
		c.events += len(events)
		if len(events) == 0 {
			return
		}
		for _, e := range events {
			c.take(e, &out)
		}
	}
}

func (c *workload) take(e MemberEvent, out *Out) {
	if !c.living[e.Session] {
		return
	}
	held := c.open[e.Session]
	switch e.Kind {
	case EventPrepare:
		if held != 0 && held != e.CompletedEpoch && held != e.Epoch {
			c.t.Fatalf("%d is to prepare %d, and has %d open", e.Session, e.Epoch, held)
		}
		c.open[e.Session] = e.Epoch
		c.confirm(protocol.PhasePreparing, e, out)
	case EventCoordinate:
		c.confirm(protocol.PhaseCoordinating, e, out)
	case EventCancel:
		if held != e.Epoch {
			c.t.Fatalf("%d is to cancel %d, and has %d open", e.Session, e.Epoch, held)
		}
		delete(c.open, e.Session)
	case EventComplete:
		if held != e.Epoch {
			c.t.Fatalf("%d is to complete %d, and has %d open", e.Session, e.Epoch, held)
		}
		delete(c.open, e.Session)
		c.confirm(protocol.PhaseCompleting, e, out)
	}
}

func (c *workload) confirm(phase protocol.ProcessPhase, e MemberEvent, out *Out) {
	if c.silent[e.Session] || c.stopAt != 0 && phase >= c.stopAt {
		return
	}
	f := map[protocol.ProcessPhase]func() error{
		protocol.PhasePreparing:    func() error { return c.p.Prepared(c.at, e.Session, e.Epoch, out) },
		protocol.PhaseCoordinating: func() error { return c.p.Complete(c.at, e.Session, e.Epoch, nil, out) },
		protocol.PhaseCompleting:   func() error { return c.p.Completed(c.at, e.Session, e.Epoch, out) },
	}[phase]
	_ = f() // the round may be over by an event behind
}

func (c *workload) join(sessions ...uint64) {
	c.entry(func(out *Out) {
		for _, s := range sessions {
			c.living[s] = true
			_, err := c.p.Join(c.at, Join{Session: s}, out)
			c.must(err)
		}
	})
}

func (c *workload) end(session uint64) {
	c.entry(func(out *Out) {
		delete(c.living, session)
		delete(c.open, session)
		c.p.SessionEnded(c.at, session, out)
	})
}

// TestManyJoins: 200 members join within a second, one log entry each; it settles, and no more
// rounds are completed than there were changes. With a debounce there are few rounds.
func TestManyJoins(t *testing.T) {
	for _, debounce := range []uint64{0, 100} {
		c := newWorkload(t, protocol.ProcessOptions{Debounce: debounce})
		for i := range uint64(200) {
			c.at.Log = i * 5
			c.join(i + 1)
		}
		c.at.Log += debounce
		c.entry(func(*Out) {})
		tally := c.p.Counters()
		if c.p.Phase() != protocol.PhaseCompleted || c.p.Len() != 200 || len(c.open) != 0 {
			t.Fatalf("debounce %d: %+v, %d open", debounce, c.p.Phase(), len(c.open))
		}
		if tally.Changes != 200 || tally.Completed > tally.Changes || debounce > 0 && tally.Started > 11 {
			t.Fatalf("debounce %d: %+v", debounce, tally)
		}
	}
}

// TestManyJoinsWithSlowMember: the same while the first member is slow to confirm: rounds are
// cancelled, and one completes.
func TestManyJoinsWithSlowMember(t *testing.T) {
	c := newWorkload(t, protocol.ProcessOptions{})
	c.silent[1] = true
	for i := range uint64(200) {
		c.join(i + 1)
	}
	c.silent[1] = false
	var out Out
	c.entry(func(out *Out) { c.p.Resend(1, out); c.take(out.Events[0], out); out.Events = out.Events[1:] })
	out.Reset()
	if tally := c.p.Counters(); c.p.Phase() != protocol.PhaseCompleted ||
		tally.Completed != 1 || tally.Cancelled != 199 {
		t.Fatalf("%v %+v", c.p.Phase(), tally)
	}
}

// TestKilledInEachPhase: a member, and the coordinator, are killed in every phase; the others
// settle with one round more.
func TestKilledInEachPhase(t *testing.T) {
	for phase := protocol.PhasePreparing; phase <= protocol.PhaseCompleted; phase++ {
		for _, victim := range []uint64{1, 3} {
			c := newWorkload(t, protocol.ProcessOptions{})
			c.stopAt = phase
			if phase == protocol.PhaseCompleted {
				c.stopAt = 0
			}
			c.join(1, 2, 3, 4, 5)
			if c.p.Phase() != phase {
				t.Fatalf("phase %v, want %v", c.p.Phase(), phase)
			}
			before := c.p.Epoch()
			c.stopAt = 0
			c.end(victim)
			c.entry(func(out *Out) { // those that were silent confirm what they are told again
				for _, s := range c.p.RoundSessions(nil) {
					var again Out
					c.p.Resend(s, &again)
					for _, e := range again.Events {
						c.confirm(map[MemberEventKind]protocol.ProcessPhase{
							EventPrepare: protocol.PhasePreparing, EventCoordinate: protocol.PhaseCoordinating,
							EventComplete: protocol.PhaseCompleting,
						}[e.Kind], e, out)
					}
				}
			})
			tally := c.p.Counters()
			completed := uint64(1)
			if phase >= protocol.PhaseCompleting {
				completed = 2
			}
			if c.p.Phase() != protocol.PhaseCompleted || c.p.Len() != 4 || len(c.open) != 0 ||
				c.p.Epoch() != before+1 || tally.Completed != completed {
				t.Fatalf("%d killed while %v: %v with %d members, %d open, epoch %d, %+v", victim,
					phase, c.p.Phase(), c.p.Len(), len(c.open), c.p.Epoch(), tally)
			}
		}
	}
}

// TestFull: no more members than MaxProcessMembers; the record of a full process is below
// MaxRecord.
func TestFull(t *testing.T) {
	c := newWorkload(t, protocol.ProcessOptions{Return: 10})
	long := func(n int, i uint64) string {
		b := make([]byte, n)
		for k := range b {
			b[k] = 'x'
		}
		for k := 0; i > 0; k, i = k+1, i/10 {
			b[k] = byte('0' + i%10)
		}
		return string(b)
	}
	c.entry(func(out *Out) {
		for i := range uint64(protocol.MaxProcessMembers) {
			_, err := c.p.Join(c.at, Join{Session: 1<<63 + i, Key: long(protocol.MaxProcessKey, i+1),
				Identity: long(MaxIdentity, 0), Data: []byte(long(protocol.MaxProcessData, 0))}, out)
			c.must(err)
		}
		if _, err := c.p.Join(c.at, Join{Session: 5}, out); err == nil {
			t.Fatal("one member too many")
		}
	})
	for range MaxHistory + 5 {
		c.entry(func(out *Out) { c.must(c.p.Force(c.at, long(10*protocol.MaxProcessText, 0), out)) })
	}
	b := c.p.Append(nil)
	if len(b) > MaxRecord {
		t.Fatalf("record has %d bytes", len(b))
	}
	p, err := Decode(b)
	c.must(err)
	if p.Digest() != c.p.Digest() || len(p.History()) != MaxHistory {
		t.Fatal("it is not the same after a restore")
	}
}

func TestNames(t *testing.T) {
	for _, good := range []string{"a", "A9", "example.process", "a-b.c-d", "0"} {
		if err := protocol.ValidateProcessName([]byte(good)); err != nil {
			t.Errorf("%q: %v", good, err)
		}
	}
	for _, bad := range []string{"", "-", "a-", ".a", "a..b", "a-.b", "a b",
		"a/b", "ä", "a_b", string(make([]byte, protocol.MaxProcessName+1))} {
		if protocol.ValidateProcessName([]byte(bad)) == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}
