package leader

import (
	"bytes"
	"fmt"
	"maps"
	"slices"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard"
)

type simEntry struct {
	bytes []byte
	from  *simReplica
	ids   []uint64
	conns []uint64 // by command
}

type simShard struct {
	id        uint64
	log       []simEntry
	authority *shard.Machine
	replicas  [2]*simReplica
	term      uint64
	master    *simReplica
	epochs    []uint64 // the authority's epoch after each entry
}

type simReplica struct {
	w             *sim
	s             *simShard
	m             *shard.Machine
	l             *Leader
	applied       int
	epoch         uint64 // elected under, 0 is none
	leaderEpoch   uint64 // of the leadership that Start was called for: its proposals and barriers are under it
	leads         bool   // the two are the same
	seq           uint64
	pausedUntil   uint64 // until
	isolatedUntil uint64 // until: it hears its clients, and nothing of the other replicas
	offset        uint64 // of its clock
	lastTick      uint64
	inbox         []simEvent
	routes        simMap // as far as it knows
}

// elect makes a replica the raft leader; the one before is not told. The take-over entry is the
// first of the term.
func (w *sim) elect(s *simShard, r *simReplica) {
	s.term++
	s.master = r
	r.epoch, r.leads, r.seq = s.term<<16, false, 0
	w.commit(r, nil, shard.Command{Kind: shard.CmdTakeOver})
}

// commit puts a batch of one command into the log of the replica's shard, under the epoch the
// replica believes in.
func (w *sim) commit(r *simReplica, done func(shard.Event), c shard.Command) *simEntry {
	return w.enter(r, w.batch(r, c), done, 0)
}

func (w *sim) batch(r *simReplica, c shard.Command) []byte {
	r.seq++
	epoch := r.leaderEpoch
	if c.Kind == shard.CmdTakeOver {
		epoch = r.epoch
	}
	h := shard.Header{Format: shard.FormatVersion, Epoch: epoch, Seq: r.seq,
		LogTime: r.l.LogTime(r.clock()), Wall: w.now}
	b := shard.AppendHeader(nil, h)
	if c.Kind != 0 {
		b = shard.AppendCommand(b, c)
	}
	return b
}

// enter is the moment of commitment: the authority applies it, and what it says is the truth from
// now on.
func (w *sim) enter(r *simReplica, batch []byte, done func(shard.Event), conn uint64) *simEntry {
	s := r.s
	s.log = append(s.log, simEntry{bytes: batch, from: r, conns: []uint64{conn}})
	e := &s.log[len(s.log)-1]
	var ev shard.Events
	s.authority.Apply(uint64(len(s.log)), batch, &ev)
	s.epochs = append(s.epochs, s.authority.Epoch())
	for _, x := range ev.List {
		switch x.Kind {
		case shard.EventReply:
			if done != nil {
				done(x)
			}
		case shard.EventRefused:
			w.counts["refused"]++
			if done != nil {
				done(shard.Event{Status: protocol.StatusUnavailable})
			}
		case shard.EventSessionEnded:
			w.sessionEnded(x)
		}
	}
	return e
}

func (w *sim) sessionEnded(x shard.Event) {
	w.ended[x.Session] = w.now
	c := w.owners[x.Session]
	if c == nil || c.session != x.Session {
		return
	}
	w.counts[fmt.Sprintf("ended by %d", x.Reason)]++
	if x.Reason == protocol.EndExpired && w.now < c.until {
		w.t.Fatalf("at %d session %s expired, and its client believes in it until %d",
			w.now, sessionName(x.Session), c.until)
	}
}

func (r *simReplica) clock() uint64 { return r.w.now + r.offset }

// State for the leader.
func (r *simReplica) HomeBucket(id uint64) (uint64, bool) {
	return r.m.Bucket(protocol.SessionBucket(id))
}

func (r *simReplica) Session(id uint64) (shard.SessionView, bool) { return r.m.Sessions().Home(id) }

func (r *simReplica) RemoteSession(id uint64) (shard.RemoteSessionView, bool) {
	return r.m.Sessions().Remote(id)
}

// apply lets a replica catch up with some of its log, as the driver of a leader does.
func (r *simReplica) apply(most int) {
	for ; most > 0 && r.applied < len(r.s.log); most-- {
		e := &r.s.log[r.applied]
		r.applied++
		var ev shard.Events
		r.m.Apply(uint64(r.applied), e.bytes, &ev)
		refused := false
		for _, x := range ev.List {
			switch x.Kind {
			case shard.EventTookOver:
				r.tookOver(x.Epoch)
			case shard.EventRefused:
				refused = true
			case shard.EventSessionAttached:
				conn := uint64(0)
				if e.from == r {
					conn = e.conns[x.Command]
				}
				if k := r.w.conns[conn]; k == nil || !k.open {
					conn = 0
				}
				r.l.Attached(r.clock(), conn, x.Session, x.Epoch, x.Timeout, x.Text)
			case shard.EventSessionDetached:
				r.l.Detached(r.clock(), x.Session, x.Epoch, x.Text)
			case shard.EventSessionEnded:
				r.l.Ended(r.clock(), x.Session, x.Ending)
			case shard.EventRemoteHeld:
				r.l.RemoteHeld(r.clock(), x.Session)
			case shard.EventRemoteIdle:
				r.l.RemoteIdle(r.clock(), x.Session)
			case shard.EventBucketsFrozen:
				r.w.notifyDetached(r, x.First, x.Count)
				r.l.BucketsFrozen(r.clock(), x.First, x.Count)
			case shard.EventBucketsActive:
				r.l.BucketsActive(r.clock())
			case shard.EventBucketsLeft:
				r.l.BucketsLeft(r.clock(), x.First, x.Count)
			}
		}
		if e.from == r {
			for _, n := range e.ids {
				r.l.Done(r.clock(), n, !refused)
			}
		}
		r.carryOut()
	}
}

func (r *simReplica) tookOver(epoch uint64) {
	if epoch == r.epoch {
		var remotes []uint64
		r.m.Sessions().Remotes(func(id, _ uint64) bool {
			remotes = append(remotes, id)
			return true
		})
		r.leads, r.leaderEpoch = true, epoch
		r.l.Start(r.clock(), epoch, r.m.LogTime(), remotes)
		return
	}
	if r.l.Leading() {
		r.w.counts["deposed"]++
	}
	r.l.Stop()
	r.leads, r.leaderEpoch = false, 0
}

func (r *simReplica) carryOut() {
	w := r.w
	ready := r.l.Take()
	fmt.Fprintf(w.trace, "%d %d %v\n", w.now, r.s.id, *ready)
	for _, x := range ready.Cut {
		w.counts["cut"]++
		w.closeConn(x.Conn)
	}
	for _, p := range ready.Pongs {
		w.pong(r, p)
	}
	for _, c := range ready.Commands {
		w.propose(r, c)
	}
	for _, p := range ready.Messages {
		if w.now < r.isolatedUntil {
			break
		}
		w.post(r.s.id, p)
	}
	if n := ready.Barrier; n != 0 {
		w.barrier(r, n)
	}
	if ready.Tick && r.l.LogTimeRuns() && w.now >= r.isolatedUntil {
		w.commit(r, nil, shard.Command{})
	}
	if ready.Compare {
		// Never by time here: it would hide what the rest misses.
		r.compare()
		r.carryOut()
	}
}

// propose brings a leader's own command into the log: now, late, or never.
func (w *sim) propose(r *simReplica, c Command) {
	w.counts[fmt.Sprintf("proposed %d", c.Kind)]++
	term := r.leaderEpoch
	batch := w.batch(r, c.Command)
	enter := func() {
		e := w.enter(r, batch, nil, 0)
		e.ids = append(e.ids, c.ID)
	}
	switch {
	case w.chance(0.1) || w.now < r.isolatedUntil:
		w.after(w.delay(300), func() {
			if r.leaderEpoch == term {
				r.l.Done(r.clock(), c.ID, false)
			}
		})
	case w.chance(0.3):
		w.after(w.delay(3_000), enter)
	default:
		enter()
	}
}

// barrier is a linearizable read: at one moment it sees what is committed, and ends when the
// replica has applied that.
func (w *sim) barrier(r *simReplica, n uint64) {
	epoch := r.leaderEpoch
	w.after(w.delay(200), func() {
		upTo := len(r.s.log)
		ok := w.now >= r.isolatedUntil && r.s.epochs[upTo-1] == epoch && !w.chance(0.1)
		if !ok {
			w.counts["barrier failed"]++
		}
		var end func()
		end = func() {
			if ok && r.applied < upTo {
				w.after(simStep, end)
				return
			}
			r.act(func() { r.l.BarrierDone(r.clock(), n, ok, r) })
		}
		w.after(w.delay(200), end)
	})
}

// act makes a call of the leader as soon as the replica runs.
func (r *simReplica) act(f func()) {
	if r.w.now < r.pausedUntil {
		r.inbox = append(r.inbox, simEvent{do: f})
		return
	}
	f()
	r.carryOut()
}

// post carries a message to a replica of the other shard that takes itself for its leader.
func (w *sim) post(from uint64, p Message) {
	copies := 1
	if w.chance(0.1) {
		copies, w.counts["duplicated"] = 2, w.counts["duplicated"]+1
	}
	if w.chance(0.2) {
		copies, w.counts["lost"] = 0, w.counts["lost"]+1
	}
	for range copies {
		w.after(w.delay(600), func() {
			s := w.shards[p.To-1]
			r := s.master
			if other := s.replicas[w.rand.IntN(2)]; other.leads && !w.quiet {
				r = other
			}
			if w.now < r.isolatedUntil {
				return
			}
			r.act(func() { r.l.Receive(r.clock(), from, bytes.Clone(p.Bytes), r) })
		})
	}
}

// notifyDetached tells clients on their connections that the home of their session moves; the
// connection has no other.
func (w *sim) notifyDetached(r *simReplica, first, count uint32) {
	for _, id := range slices.Sorted(maps.Keys(w.conns)) {
		k := w.conns[id]
		if k.r != r || !k.open || !inRun(k.session, first, count) {
			continue
		}
		w.counts["told of a move"]++
		w.after(w.delay(200), func() {
			if k.c.conn == k {
				k.c.conn = nil
			}
		})
	}
}
