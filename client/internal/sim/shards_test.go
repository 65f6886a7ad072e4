package sim

import (
	"bytes"
	"fmt"
	"sync"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard"
	"github.com/signalbox-dev/signalbox/shard/leader"
)

// logEntry is an entry of a log, and its proposer. The replica that proposed it reports the outcome
// when it applies it, if it has not restarted since.
type logEntry struct {
	bytes []byte
	from  *replica
	life  int
	note  uint64
	// origin is the client's request; nil: it is none.
	origin *origin
}

// raftGroup is a shard: its log, which is durable and agreed on, and its replicas, which apply it
// late. committed applies each entry at once: it is the truth that replicas reach later.
type raftGroup struct {
	w            *simulation
	id           uint64
	log          []logEntry
	epochs       []uint64 // the epoch of committed after each entry
	committed    *shard.Machine
	out          shard.Events
	wasActive    [buckets]bool   // before the newest entry: buckets that were active
	transferring bool            // the leader of the committed epoch transfers
	goneSessions map[uint64]bool // remote sessions that were released because they ended
	term         uint64
	elected      map[uint64]*replica // by term
	leader       *replica
	replicas     [replicas]*replica

	unconfirmedUntil uint64 // barriers fail before
}

// replica is one of a shard. It may believe that it leads it.
type replica struct {
	*instance
	s            *raftGroup
	n            uint32
	life         int // restarts so far
	m            *shard.Machine
	leader       *leader.Leader
	out          shard.Events
	applied      int
	electedEpoch uint64 // elected under; 0: none
	leaderEpoch  uint64 // of the leadership that Start was called for; 0: none. Its proposals and barriers are under it
	leading      bool   // electedEpoch and leaderEpoch are the same
	knownLeader  *replica
	knownTerm    uint64
	seq          uint64
	lastTick     uint64

	late    *lateRequests // of clients, under leaderEpoch
	streams []*stream

	snapshot      []byte // the newest snapshot
	snapshotIndex int
}

// newGroup makes a shard, whose replicas are on instances of their own, or on those that all shards
// share.
func newGroup(w *simulation, id uint64) *raftGroup {
	s := &raftGroup{
		w: w, id: id, committed: shard.New(id), goneSessions: map[uint64]bool{}, elected: map[uint64]*replica{},
	}
	for i := range s.replicas {
		r := &replica{s: s, n: uint32(placeOf(id)+1)*10 + uint32(i)}
		if r.instance = w.shared[i]; r.instance == nil {
			r.instance = w.newInstance(r.n)
		}
		r.hosted = append(r.hosted, r)
		r.boot()
		s.replicas[i] = r
	}
	return s
}

// boot begins a life of the process: only what is on the disk is there.
func (r *replica) boot() {
	r.life++
	r.m, r.applied = shard.New(r.s.id), 0
	if r.snapshot != nil {
		m, err := shard.Restore(bytes.NewReader(r.snapshot))
		if err != nil {
			r.w.fail("a snapshot of shard %d is not read: %v", r.s.id, err)
		}
		r.m, r.applied = m, r.snapshotIndex
	}
	r.electedEpoch, r.leaderEpoch, r.leading, r.streams = 0, 0, false, nil
	r.knownTerm = r.m.Epoch() >> 16
	r.knownLeader = r.s.elected[r.knownTerm]
	r.leader = leader.New(leader.Config{
		Shard: r.s.id, SelfCheck: 500, Compare: 1 << 40, BarrierTimeout: r.w.doubt,
		Route: func(tier uint8, b uint32) (uint64, uint64) {
			if tier != r.w.tier {
				return 0, 0
			}
			return r.known.owner[b], r.known.epoch[b]
		},
	})
}

// accepts reports whether the shard's leader can bring something into the log now.
func (s *raftGroup) accepts() bool {
	r := s.leader
	return r.leading && r.running() && s.w.now >= r.isolatedUntil
}

// elect makes a replica the leader. The take-over is the first entry of its term.
func (s *raftGroup) elect(r *replica) {
	s.term++
	s.leader, s.elected[s.term] = r, r
	r.electedEpoch, r.leading, r.seq = s.term<<16, false, 0
	s.enter(logEntry{bytes: r.batch(r.electedEpoch, shard.Command{Kind: shard.CmdTakeOver}), from: r, life: r.life})
}

// transfer has the leader transfer to a replica, which takes over a while later, or does not. The
// log may not have the transfer by then.
func (s *raftGroup) transfer(to *replica) {
	w, r := s.w, s.leader
	life, term := r.life, r.leaderEpoch
	r.leader.Transfer(r.clock(), r.lastReceived)
	if r.execute(); r.life != life {
		return
	}
	r.propose(leader.Command{Command: shard.Command{Kind: shard.CmdTransfer, Body: shard.TransferBegins}})
	fails := w.fault(TransferFails, uint32(s.id), 0.3)
	w.after(w.delay(r.n), func() {
		switch {
		case s.leader != r || r.life != life || r.leaderEpoch != term || !s.accepts():
		case fails || to == r || !to.up() || w.now < to.isolatedUntil:
			r.propose(leader.Command{Command: shard.Command{Kind: shard.CmdTransfer, Body: shard.TransferCancelled}})
		default:
			s.elect(to)
			w.counts["transferred"]++
		}
	})
}

// batch is one command, or none, with the leader's stamp.
func (r *replica) batch(epoch uint64, c shard.Command) []byte {
	r.seq++
	h := shard.Header{Format: shard.FormatVersion, Epoch: epoch, Seq: r.seq, LogTime: r.leader.LogTime(r.clock()), Wall: r.w.now}
	b := shard.AppendHeader(nil, h)
	if c.Kind != 0 {
		b = shard.AppendCommand(b, c)
	}
	return b
}

// commit brings a command into the log at once. The reply is that of committed; there is none if
// the batch is refused.
func (s *raftGroup) commit(r *replica, c shard.Command) (reply shard.Event, ok bool) {
	return s.enter(logEntry{bytes: r.batch(r.leaderEpoch, c), from: r, life: r.life})
}

// enter commits an entry.
func (s *raftGroup) enter(e logEntry) (reply shard.Event, ok bool) {
	w := s.w
	s.log = append(s.log, e)
	was := s.committed.LogTime()
	before, takes := s.beforeTakeOver(e.bytes)
	for b := range s.wasActive {
		_, s.wasActive[b] = s.committed.Bucket(uint32(b))
	}
	s.out.Reset()
	s.committed.Apply(uint64(len(s.log)), e.bytes, &s.out)
	s.epochs = append(s.epochs, s.committed.Epoch())
	if s.committed.LogTime() < was {
		w.fail("log time of shard %d went back from %d to %d", s.id, was, s.committed.LogTime())
	}
	refused := false
	for i := range s.out.List {
		switch x := &s.out.List[i]; x.Kind {
		case shard.EventReply:
			reply, ok = *x, true
		case shard.EventRefused:
			refused = true
			w.counts["refused batch"]++
		}
	}
	w.checkEntry(s, e.bytes, refused)
	if takes {
		s.afterTakeOver(before)
	}
	return reply, ok
}

func (s *raftGroup) step() {
	w := s.w
	m := s.leader
	p := 0.0 // probability that the others notice
	switch {
	case !m.up() || m.electedEpoch == 0 || w.now < m.isolatedUntil:
		p = 0.05
	case !m.running():
		p = 0.02
	}
	if r := s.replicas[w.pick(Elect, uint32(s.id), replicas)]; r.up() && w.now >= r.isolatedUntil {
		switch {
		case w.fault(Elect, uint32(s.id), w.electionChance) || w.chance(Elect, uint32(s.id), p):
			s.elect(r)
		case s.accepts() && w.fault(Transfer, uint32(s.id), w.electionChance):
			s.transfer(r)
		}
	}
}

func (r *replica) step() {
	w, life := r.w, r.life
	if w.now >= r.isolatedUntil && !w.fault(Lag, r.n, 0.2) {
		if r.apply(1 + int(w.pick(Lag, r.n, 30))); r.life != life {
			return
		}
	}
	r.sendPages()
	if w.fault(Snapshot, r.n, 0.003) {
		var b bytes.Buffer
		if err := r.m.BeginSnapshot().WriteTo(&b, new(sync.Mutex)); err != nil {
			w.fail("a snapshot of shard %d is not written: %v", r.s.id, err)
		}
		r.snapshot, r.snapshotIndex = b.Bytes(), r.applied
	}
	if w.now-r.lastTick < 100 {
		return
	}
	r.lastTick = w.now
	next, has := r.m.NextDeadline()
	r.leader.Tick(r.clock(), r.lastReceived, next, has)
	r.execute()
}

// lastReceived is when something last arrived on a connection, and whether it is open.
func (r *replica) lastReceived(id uint64) (uint64, bool) {
	k := r.w.conns[id]
	if k == nil {
		return 0, false
	}
	return k.lastReceived, k.open
}

// apply lets a replica catch up with some of its log, as the driver of a leader does.
func (r *replica) apply(most int) {
	life := r.life
	for ; most > 0 && r.applied < len(r.s.log); most-- {
		e := r.s.log[r.applied]
		r.applied++
		mine := e.from == r && e.life == r.life
		r.out.Reset()
		r.m.Apply(uint64(r.applied), e.bytes, &r.out)
		refused := false
		for i := range r.out.List {
			x := &r.out.List[i]
			switch x.Kind {
			case shard.EventTookOver:
				r.tookOver(x.Epoch)
			case shard.EventRefused:
				refused = true
				if mine && e.origin != nil {
					r.rejectSubmit(e.origin)
				}
			case shard.EventReply:
				if mine && e.origin != nil {
					r.answer(e.origin, x)
				}
			case shard.EventAcquireResult, shard.EventLeaseLost, shard.EventLeasePreempted:
				r.deliverResult(x)
			case shard.EventSessionAttached:
				o := e.origin
				if !mine {
					o = nil
				}
				r.sessionAttached(o, x)
			case shard.EventSessionDetached:
				r.leader.Detached(r.clock(), x.Session, x.Epoch, x.Text)
			case shard.EventSessionEnded:
				r.leader.Ended(r.clock(), x.Session, x.Ending)
				r.endSession(x)
			case shard.EventRemoteHeld:
				r.leader.RemoteHeld(r.clock(), x.Session)
			case shard.EventRemoteIdle:
				r.leader.RemoteIdle(r.clock(), x.Session)
			case shard.EventBucketsFrozen:
				first, count := x.First, x.Count
				r.bucketsChanged(func(bucket uint32) bool { return bucket >= first && bucket-first < count })
				r.detach(x.First, x.Count)
				r.leader.BucketsFrozen(r.clock(), x.First, x.Count)
			case shard.EventBucketsActive:
				r.bucketsChanged(func(uint32) bool { return false })
				r.leader.BucketsActive(r.clock())
				if r.leading {
					r.announceLeader()
				}
			case shard.EventBucketsLeft:
				r.leader.BucketsLeft(r.clock(), x.First, x.Count)
			}
		}
		r.sendChanges(r.out.SemaphoreChanges)
		if mine && e.note != 0 {
			r.leader.Done(r.clock(), e.note, !refused)
		}
		if r.execute(); r.life != life {
			return
		}
	}
}

func (r *replica) remoteSessions() (list []uint64) {
	r.m.Sessions().Remotes(func(id, _ uint64) bool {
		list = append(list, id)
		return true
	})
	return list
}

func (r *replica) tookOver(epoch uint64) {
	r.detach(0, buckets) // the new leader has detached all
	r.knownTerm = epoch >> 16
	r.knownLeader = r.s.elected[r.knownTerm]
	defer r.announceLeader()
	if epoch == r.electedEpoch {
		r.leading, r.leaderEpoch = true, epoch
		r.late = &lateRequests{s: r.s}
		r.leader.Start(r.clock(), epoch, r.m.LogTime(), r.remoteSessions())
		return
	}
	if r.leader.Leading() {
		r.w.counts["deposed"]++
	}
	r.leader.Stop()
	r.leading, r.leaderEpoch = false, 0
	if epoch > r.electedEpoch {
		r.electedEpoch = 0
	}
}

// execute carries out the leader's actions. The process may end between any two of them.
func (r *replica) execute() {
	w, life := r.w, r.life
	ready := r.leader.Take()
	n := len(ready.Cut) + len(ready.Pongs) + len(ready.Commands) + len(ready.Messages)
	if n > 0 {
		fmt.Fprintf(w.trace, "%d %d %v\n", w.now, r.n, *ready)
	}
	crashes := func() bool {
		if n > 0 && w.fault(CrashMidway, r.n, 0.002) {
			r.crash()
		}
		return r.life != life
	}
	for _, x := range ready.Cut {
		w.counts["cut"]++
		if k := w.conns[x.Conn]; k != nil && x.Reason != "" {
			k.close(x.Reason)
		} else if k != nil {
			r.detach(0, buckets, k)
		}
	}
	for _, p := range ready.Pongs {
		if crashes() {
			return
		}
		r.pong(p)
	}
	for _, c := range ready.Commands {
		if crashes() {
			return
		}
		r.propose(c)
	}
	for _, p := range ready.Messages {
		if crashes() {
			return
		}
		if w.now >= r.isolatedUntil {
			r.sendPeerMessage(p)
		}
	}
	if ready.Barrier != 0 {
		r.barrier(ready.Barrier)
	}
	if ready.Tick && r.leader.LogTimeRuns() && w.now >= r.isolatedUntil {
		r.s.commit(r, shard.Command{})
	}
	if ready.Compare {
		// Moves ask for it. The periodic one is switched off: it would hide what the rest misses.
		r.leader.Holdings(r.clock(), r.remoteSessions())
		r.execute()
	}
}

// propose brings a leader's own command into the log: now, late or never.
func (r *replica) propose(c leader.Command) {
	w, life := r.w, r.life
	w.counts[fmt.Sprintf("proposed %d", c.Kind)]++
	term := r.leaderEpoch
	e := logEntry{bytes: r.batch(term, c.Command), from: r, life: r.life, note: c.ID}
	switch {
	case w.now < r.isolatedUntil || w.fault(NotProposed, r.n, 0.1):
		w.after(w.delay(r.n), func() {
			if r.life == life && r.leaderEpoch == term {
				r.call(func() { r.leader.Done(r.clock(), c.ID, false) })
			}
		})
	case w.fault(DelayProposal, r.n, 0.2):
		w.after(w.pick(DelayProposal, r.n, 8_000), func() { r.s.enter(e) })
	default:
		r.s.enter(e)
	}
}

// barrier is a linearizable read of the register. It sees what is committed at one moment, and ends
// when the replica has applied that.
func (r *replica) barrier(n uint64) {
	w, life, epoch := r.w, r.life, r.leaderEpoch
	w.after(w.delay(r.n), func() {
		upTo := len(r.s.log)
		ok := w.now >= r.isolatedUntil && (w.now >= r.s.unconfirmedUntil || w.faultsOver) &&
			r.s.epochs[upTo-1] == epoch && !w.fault(BarrierFails, r.n, 0.05)
		if !ok {
			w.counts["barrier failed"]++
		}
		var end func()
		end = func() {
			switch {
			case r.life != life:
			case ok && r.applied < upTo:
				w.after(step, end)
			default:
				r.call(func() { r.leader.BarrierDone(r.clock(), n, ok, r) })
			}
		}
		w.after(w.delay(r.n), end)
	})
}

// call calls the leader as soon as the replica runs.
func (r *replica) call(f func()) {
	life := r.life
	r.instance.call(func() {
		if r.life == life {
			f()
			r.execute()
		}
	})
}

// sendPeerMessage sends a message to a replica of the other shard that takes itself for its leader.
func (r *replica) sendPeerMessage(p leader.Message) {
	w := r.w
	copies := 1
	if w.fault(DuplicateMessage, r.n, 0.05) {
		copies = 2
	}
	if w.fault(LoseMessage, r.n, 0.1) {
		copies = 0
	}
	msg := bytes.Clone(p.Bytes)
	for range copies {
		w.after(w.delay(r.n), func() {
			s := w.shardByID(p.To)
			if s == nil {
				return
			}
			to := s.leader
			if other := s.replicas[w.pick(LoseMessage, r.n, replicas)]; other.leading && !w.faultsOver {
				to = other
			}
			if w.now >= to.isolatedUntil {
				to.call(func() { to.leader.Receive(to.clock(), r.s.id, msg, to) })
			}
		})
	}
}

// HomeBucket, Session and RemoteSession are what the leader looks up.
func (r *replica) HomeBucket(id uint64) (uint64, bool) {
	return r.m.Bucket(protocol.SessionBucket(id))
}

// Session looks up a session at home here.
func (r *replica) Session(id uint64) (shard.SessionView, bool) { return r.m.Sessions().Home(id) }

// RemoteSession looks up a remote session.
func (r *replica) RemoteSession(id uint64) (shard.RemoteSessionView, bool) {
	return r.m.Sessions().Remote(id)
}
