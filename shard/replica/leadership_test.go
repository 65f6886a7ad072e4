package replica

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lni/dragonboat/v4"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard"
	"github.com/signalbox-dev/signalbox/shard/replica/engine"
)

// fakeProposal has the outcome it is given.
type fakeProposal struct{ c chan engine.Outcome }

func knownOutcome(o engine.Outcome) fakeProposal {
	f := fakeProposal{make(chan engine.Outcome, 1)}
	f.c <- o
	return f
}

func (f fakeProposal) Poll() engine.Outcome {
	select {
	case o := <-f.c:
		return o
	default:
		return engine.Pending
	}
}

func isTakeOver(entry []byte) bool {
	_, rest, err := shard.ReadHeader(entry)
	return err == nil && len(rest) > 0 && shard.CommandKind(rest[0]) == shard.CmdTakeOver
}

// hasClientRequest reports whether an entry holds a client's command. Others are the leader's own,
// which come when they are due: a tick, or a take-over.
func hasClientRequest(entry []byte) bool {
	_, rest, err := shard.ReadHeader(entry)
	for err == nil && len(rest) > 0 {
		var c shard.Command
		if c, rest, err = shard.ReadCommand(rest); err == nil && c.Kind < shard.CmdTakeOver {
			return true
		}
	}
	return false
}

// onlyBatches applies a fault to what clients asked for and lets the leader's own entries through.
func onlyBatches(
	fault func(next func([]byte) (engine.Proposal, error), entry []byte) (engine.Proposal, error),
) func(next func([]byte) (engine.Proposal, error), entry []byte) (engine.Proposal, error) {
	return func(next func([]byte) (engine.Proposal, error), entry []byte) (engine.Proposal, error) {
		if !hasClientRequest(entry) {
			return next(entry)
		}
		return fault(next, entry)
	}
}

// proposeRaw puts an entry into the log past the proposer and waits until it is applied here.
func proposeRaw(t testing.TB, s *Shard, entry []byte) {
	t.Helper()
	for {
		r, err := s.host.engine.ProposeRequest(s.session, entry, patience)
		if errors.Is(err, dragonboat.ErrShardNotReady) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		res := <-r.AppliedC()
		if res.Dropped() {
			continue
		}
		if !res.Completed() {
			t.Fatalf("entry is not applied: %+v", res)
		}
		return
	}
}

func TestUndeterminedIsDecidedByTakeOver(t *testing.T) {
	t.Parallel()
	var f faultGate
	h := openHost(t, HostConfig{})
	s, r := startOne(t, h, func(c *ShardConfig) { c.proposeVia = f.via })
	populate(t, s)
	c := newCaller(t, s, r, 1, 60_000)
	c.mustCreate("first")
	epoch := s.Stats().Epoch

	var late []byte
	f.set(onlyBatches(func(_ func([]byte) (engine.Proposal, error), entry []byte) (engine.Proposal, error) {
		late = slices.Clone(entry)
		f.set(nil)
		return knownOutcome(engine.Unknown), nil // the engine lost it, or so it says
	}))
	lost := c.create("lost")
	res := r.result(lost)
	if !res.failed || res.status != protocol.StatusUnavailable {
		t.Fatalf("lost request got %+v", res)
	}
	st := s.Stats()
	if st.RepeatedTakeOvers != 1 || st.Undetermined != 1 || st.Epoch != epoch+1 {
		t.Errorf("epoch %d became %d after %d repeated take-overs for %d unknown outcomes",
			epoch, st.Epoch, st.RepeatedTakeOvers, st.Undetermined)
	}
	if !s.Leading() {
		t.Error("a repeated take-over ended the leadership")
	}

	// The engine delivers it after all.
	proposeRaw(t, s, late)
	if exists(t, s, "lost") {
		t.Error("a request that was answered UNAVAILABLE was applied later")
	}
	if got := s.Stats().Refused; got != 1 {
		t.Errorf("%d entries refused", got)
	}
	c.mustCreate("after")
	if n := len(r.results[lost]); n != 1 {
		t.Errorf("lost request has %d outcomes", n)
	}
	if !slices.Equal(r.changes[len(r.changes)-1:], []string{"1 true"}) {
		t.Errorf("leadership was announced as %v", r.changes)
	}
}

func TestUndeterminedMayBeApplied(t *testing.T) {
	t.Parallel()
	var f faultGate
	h := openHost(t, HostConfig{})
	s, r := startOne(t, h, func(c *ShardConfig) { c.proposeVia = f.via })
	populate(t, s)
	c := newCaller(t, s, r, 1, 60_000)

	// Proposed, but the engine says that it timed out.
	f.set(onlyBatches(func(next func([]byte) (engine.Proposal, error), entry []byte) (engine.Proposal, error) {
		f.set(nil)
		if _, err := next(entry); err != nil {
			return nil, err
		}
		return knownOutcome(engine.Unknown), nil
	}))
	res := r.result(c.create("timed out"))
	if res.failed || res.status != protocol.StatusOK {
		t.Fatalf("applied request got %+v", res)
	}
	if !exists(t, s, "timed out") {
		t.Error("acknowledged request has no effect")
	}
	c.low = c.seq + 1

	// It arrives late, but before the new epoch: it counts, and only once.
	var late []byte
	f.set(func(next func([]byte) (engine.Proposal, error), entry []byte) (engine.Proposal, error) {
		if isTakeOver(entry) {
			f.set(nil)
			if _, err := next(late); err != nil {
				return nil, err
			}
			return next(entry)
		}
		if !hasClientRequest(entry) {
			return next(entry)
		}
		late = slices.Clone(entry)
		return knownOutcome(engine.Unknown), nil
	})
	res = r.result(c.create("late"))
	if res.failed || res.status != protocol.StatusOK {
		t.Fatalf("request applied before the take-over got %+v", res)
	}
	c.low = c.seq + 1
	c.mustCreate("after")
}

func TestTakeOverIsRepeated(t *testing.T) {
	t.Parallel()
	var f faultGate
	h := openHost(t, HostConfig{})
	s, r := startOne(t, h, func(c *ShardConfig) { c.proposeVia = f.via })
	populate(t, s)
	c := newCaller(t, s, r, 1, 60_000)
	epoch := s.Stats().Epoch
	var takeOvers int
	var withheld []byte
	retaking, goOn := make(chan struct{}), make(chan struct{})
	f.set(func(next func([]byte) (engine.Proposal, error), entry []byte) (engine.Proposal, error) {
		switch {
		case isTakeOver(entry):
		case hasClientRequest(entry):
			return knownOutcome(engine.Unknown), nil
		default:
			return next(entry)
		}
		switch takeOvers++; takeOvers {
		case 1:
			close(retaking)
			<-goOn
			withheld = slices.Clone(entry)
			return knownOutcome(engine.Unknown), nil
		case 2:
			return knownOutcome(engine.Dropped), nil
		case 3:
			return nil, dragonboat.ErrSystemBusy
		}
		f.set(nil)
		if _, err := next(withheld); err != nil { // the first one comes after all, just before the last
			return nil, err
		}
		return next(entry)
	})
	lost := c.create("lost")
	<-retaking
	// What comes while the epoch is taken over again waits for the new one: under the old one it
	// would be lost too.
	waits := c.create("waits")
	close(goOn)
	if res := r.result(lost); !res.failed || res.status != protocol.StatusUnavailable {
		t.Fatalf("lost request got %+v", res)
	}
	if res := r.result(waits); res.failed || res.status != protocol.StatusOK {
		t.Fatalf("request made during the take-over got %+v", res)
	}
	c.low = c.seq + 1
	c.mustCreate("after")
	if st := s.Stats(); st.Epoch != epoch+4 || st.RepeatedTakeOvers != 4 {
		t.Errorf("epoch %d became %d after %d repeated take-overs", epoch, st.Epoch, st.RepeatedTakeOvers)
	}
}

func TestNothingIsAcceptedBeforeTakeOver(t *testing.T) {
	t.Parallel()
	var f faultGate
	h := openHost(t, HostConfig{})
	claims := make(chan struct{})
	f.set(func(next func([]byte) (engine.Proposal, error), entry []byte) (engine.Proposal, error) {
		claims <- struct{}{}
		return knownOutcome(engine.Dropped), nil
	})
	r := newRecorder(t)
	s, err := h.StartShard(ShardConfig{ID: 1, Replica: 1, Members: map[uint64]string{1: h.RaftAddress()},
		Sink: r, proposeVia: f.via})
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		<-claims
		if s.Leading() || s.Submit(shard.Command{Kind: shard.CmdCreate}, Origin{Conn: 1, Request: 1}) != protocol.StatusUnavailable {
			t.Error("accepted before the own epoch is applied")
		}
		if barrier(s) {
			t.Error("a barrier succeeds before the own epoch is applied")
		}
	}
	f.set(nil)
	for done := false; !done; {
		select {
		case <-claims:
		default:
			done = s.Leading()
		}
	}
	populate(t, s)
	newCaller(t, s, r, 1, 60_000).mustCreate("after")
}

// slowSink takes its time over each entry for as long as slow says.
type slowSink struct {
	*recorder
	slow atomic.Bool
}

func (x *slowSink) Applied(s *Shard, index uint64, origins []Origin, ev *shard.Events) {
	if x.slow.Load() {
		time.Sleep(100 * time.Millisecond)
	}
	x.recorder.Applied(s, index, origins, ev)
}

// Where each entry takes longer than the timeout of a proposal, the leader answers nevertheless.
func TestSlowLogStillAnswers(t *testing.T) {
	t.Parallel()
	h := openHost(t, HostConfig{})
	x := &slowSink{recorder: newRecorder(t)}
	x.slow.Store(true)
	s, err := h.StartShard(ShardConfig{
		ID: 1, Replica: 1, Members: map[uint64]string{1: h.RaftAddress()}, Sink: x,
		ProposeTimeout: 20 * time.Millisecond,
	})
	if err != nil {
		t.Fatal(err)
	}
	x.awaitLeading()
	populate(t, s)
	newCaller(t, s, x.recorder, 1, 60_000).mustCreate("slow")
	switch n := s.Stats().RepeatedTakeOvers; {
	case n == 0:
		t.Error("no proposal took longer than its timeout: the log was not slow")
	case n > 100:
		t.Errorf("the epoch was taken over again %d times for four requests", n)
	default:
		t.Logf("the epoch was taken over again %d times", n)
	}
	x.slow.Store(false)
}

func TestDroppedAndNotProposedFail(t *testing.T) {
	t.Parallel()
	var f faultGate
	h := openHost(t, HostConfig{})
	s, r := startOne(t, h, func(c *ShardConfig) { c.proposeVia = f.via })
	populate(t, s)
	c := newCaller(t, s, r, 1, 60_000)
	epoch := s.Stats().Epoch
	for _, x := range []struct {
		outcome engine.Outcome
		err     error
		want    protocol.Status
	}{
		{outcome: engine.Dropped, want: protocol.StatusUnavailable},
		{err: dragonboat.ErrSystemBusy, want: protocol.StatusOverloaded},
		{err: dragonboat.ErrShardClosed, want: protocol.StatusUnavailable},
		{err: dragonboat.ErrShardNotFound, want: protocol.StatusUnavailable},
		{err: dragonboat.ErrClosed, want: protocol.StatusUnavailable},
	} {
		f.set(onlyBatches(func(func([]byte) (engine.Proposal, error), []byte) (engine.Proposal, error) {
			f.set(nil)
			if x.err != nil {
				return nil, x.err
			}
			return knownOutcome(x.outcome), nil
		}))
		if res := r.result(c.create("dropped")); !res.failed || res.status != x.want {
			t.Errorf("outcome %v, error %v: answered %+v", x.outcome, x.err, res)
		}
	}
	if got := s.Stats().Epoch; got != epoch {
		t.Errorf("epoch was taken over again, from %d to %d for outcomes that are known", epoch, got)
	}
	c.mustCreate("after")
}

func TestForeignEpochDeposes(t *testing.T) {
	t.Parallel()
	var f faultGate
	h := openHost(t, HostConfig{})
	s, r := startOne(t, h, func(c *ShardConfig) { c.proposeVia = f.via })
	populate(t, s)
	c := newCaller(t, s, r, 1, 60_000)
	if !barrier(s) {
		t.Fatal("the leader's barrier fails")
	}
	took := make(chan []byte, 1)
	f.set(onlyBatches(func(_ func([]byte) (engine.Proposal, error), entry []byte) (engine.Proposal, error) {
		took <- slices.Clone(entry)
		return fakeProposal{make(chan engine.Outcome, 1)}, nil // on its way for ever
	}))
	flying := c.create("flying")
	late := <-took

	// Another leader's epoch comes through the log. The raft engine here knows nothing of it: what
	// follows must come from the register alone.
	foreign := s.Stats().Epoch + 7<<16
	proposeRaw(t, s, shard.AppendCommand(shard.AppendHeader(nil, shard.Header{Format: shard.FormatVersion, Epoch: foreign, Seq: 1}),
		shard.Command{Kind: shard.CmdTakeOver}))
	if barrier(s) {
		t.Error("the barrier of a deposed leader succeeds")
	}
	if s.Leading() || s.Fresh(0) {
		t.Error("a deposed leader goes on")
	}
	if st := s.Submit(shard.Command{Kind: shard.CmdCreate}, Origin{Conn: 1, Request: 99}); st != protocol.StatusUnavailable {
		t.Errorf("a deposed leader says %v", st)
	}
	if res := r.result(flying); !res.failed || res.status != protocol.StatusUnavailable {
		t.Errorf("request in flight got %+v", res)
	}
	proposeRaw(t, s, late)
	if exists(t, s, "flying") {
		t.Error("a deposed leader's batch was applied")
	}
	if got := s.Stats().Epoch; got != foreign {
		t.Errorf("register holds %d, want %d", got, foreign)
	}
	if !s.Fresh(time.Hour) {
		t.Error("a replica whose read-index succeeds is not fresh")
	}
}

// What a former leader took over may be applied after the election of the next one, and before that
// one takes over itself.
func TestFormerEpochDoesNotDepose(t *testing.T) {
	t.Parallel()
	c := newCluster(t, nil)
	c.populate()
	to := (c.leader() + 1) % 3
	x, q := c.shards[to], &c.shards[to].proposals
	x.proposer.mu.Lock() // the proposer does nothing; its part of following raft is done below
	goOn := sync.OnceFunc(x.proposer.mu.Unlock)
	defer goOn()
	var former uint64
	for elected := false; !elected; {
		l := c.leader()
		former = c.shards[l].Stats().Epoch
		ctx, cancel := context.WithCancel(timeout(t))
		go func() {
			_ = c.hosts[l].Transfer(ctx, 1, c.ids[to], 0) // it waits for the take-over, or gives up
			cancel()
		}()
		eventually(t, "raft to elect the target", func() bool {
			x.leadership.handleLeaderUpdate()
			_, leader := q.RaftStatus()
			elected = leader == x.Replica()
			return elected || ctx.Err() != nil
		})
		cancel()
	}
	late := shard.Header{Format: shard.FormatVersion, Epoch: former + 1, Seq: 1}
	proposeRaw(t, x, shard.AppendCommand(shard.AppendHeader(nil, late), shard.Command{Kind: shard.CmdTakeOver}))
	goOn()
	c.make("after")
	c.converge()
}

func TestFreshnessCountsFromTheStart(t *testing.T) {
	var x roundStart
	if x.within(time.Hour, time.Hour) {
		t.Error("never seen, but fresh")
	}
	x.note(2 * time.Hour)
	x.note(time.Hour) // an older round that ends later
	if !x.within(2*time.Hour+time.Second, 2*time.Second) || x.within(2*time.Hour+time.Second, time.Second) {
		t.Error("age is not counted from the start of the latest round")
	}
}
