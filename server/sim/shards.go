package sim

import (
	"bytes"
	"fmt"
	"sync"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard"
	"github.com/signalbox-dev/signalbox/shard/leader"
)

// entry of a log, and who waits for it: outcomes are told by the replica that proposed it, in the life in which it did, when it applies it.
type entry struct {
	bytes []byte
	from  *replica
	life  int
	note  uint64
	conn  uint64
	reply func(shard.Event)
}

// group is a shard: its log, which is durable and agreed on, and its replicas, which apply it late. The authority applies at once what enters the log: it is the
// truth that replicas come to later.
type group struct {
	w         *world
	id        uint64
	log       []entry
	epochs    []uint64 // the authority's epoch after each entry
	authority *shard.Machine
	out       shard.Events
	served    [buckets]bool   // before the newest entry
	handed    bool            // the leader of the authority's epoch hands over
	released  map[uint64]bool // guests that were said to be gone
	term      uint64
	master    *replica
	replicas  [replicas]*replica
}

// replica is a process that hosts one shard, and may believe that it leads it.
type replica struct {
	w       *world
	s       *group
	n       uint32
	life    int // restarts so far
	m       *shard.Machine
	l       *leader.Leader
	out     shard.Events
	applied int
	epoch   uint64 // elected under, 0 is none
	led     uint64 // of the leadership that Start was called for, 0 is none: its proposals and barriers are under it
	ruling  bool   // the two are the same
	seq     uint64
	ticked  uint64
	inbox   []func()
	places  places // as far as it knows

	rate, offset        uint64 // of its clock: ppm of the world's time, ms
	paused, apart, down uint64 // until
	disk                []byte // the newest snapshot
	diskAt              int
}

func newGroup(w *world, id uint64) *group {
	s := &group{w: w, id: id, authority: shard.New(id), released: map[uint64]bool{}}
	for i := range s.replicas {
		r := &replica{w: w, s: s, n: uint32(id)*10 + uint32(i), places: w.places}
		r.rate, r.offset = 1_000_000-5_000+w.pick(Elect, r.n, 10_001), w.pick(Elect, r.n, 1<<20)
		r.boot()
		s.replicas[i] = r
	}
	return s
}

// boot begins a life: only what is on the disk is there.
func (r *replica) boot() {
	r.life++
	r.m, r.applied = shard.New(r.s.id), 0
	if r.disk != nil {
		m, err := shard.Restore(bytes.NewReader(r.disk))
		if err != nil {
			r.w.fail("a snapshot of shard %d is not read: %v", r.s.id, err)
		}
		r.m, r.applied = m, r.diskAt
	}
	r.epoch, r.led, r.ruling, r.inbox = 0, 0, false, nil
	r.l = leader.New(leader.Config{
		Shard: r.s.id, SelfCheck: 500, Compare: 1 << 40, BarrierTimeout: r.w.doubt,
		Route: func(_ uint8, b uint32) (uint64, uint64) { return r.places.owner[b], r.places.epoch[b] },
	})
}

// crash ends a life. Connections end with it.
func (r *replica) crash() {
	w := r.w
	r.down = w.now + 200 + w.pick(Crash, r.n, 4_000)
	r.boot()
	for _, id := range sorted(w.conns) {
		if k := w.conns[id]; k.r == r {
			w.dropConn(k)
		}
	}
}

func (r *replica) up() bool      { return r.w.now >= r.down }
func (r *replica) running() bool { return r.up() && r.w.now >= r.paused }

func (r *replica) clock() uint64 { return r.offset + r.w.now*r.rate/1_000_000 }

// accepts says that the shard's leader can bring something into the log now.
func (s *group) accepts() bool {
	r := s.master
	return r.ruling && r.running() && s.w.now >= r.apart
}

// elect makes a replica the leader. The take-over is the first entry of its term.
func (s *group) elect(r *replica) {
	s.term++
	s.master = r
	r.epoch, r.ruling, r.seq = s.term<<16, false, 0
	s.enter(entry{bytes: r.batch(r.epoch, shard.Command{Kind: shard.CmdTakeOver}), from: r, life: r.life})
}

// transfer has the leader hand over to a replica, which takes over a while later, or does not.
// Whether the log has heard of the hand-over by then is another matter.
func (s *group) transfer(to *replica) {
	w, r := s.w, s.master
	life, term := r.life, r.led
	r.l.HandOver(r.clock(), r.heard)
	if r.carryOut(); r.life != life {
		return
	}
	r.propose(leader.Command{Command: shard.Command{Kind: shard.CmdHandOver, Body: shard.HandOverBegins}})
	fails := w.fault(TransferFails, uint32(s.id), 0.3)
	w.after(w.delay(r.n), func() {
		switch {
		case s.master != r || r.life != life || r.led != term || !s.accepts():
		case fails || to == r || !to.up() || w.now < to.apart:
			r.propose(leader.Command{Command: shard.Command{Kind: shard.CmdHandOver, Body: shard.HandOverCancelled}})
		default:
			s.elect(to)
			w.seen["handed over"]++
		}
	})
}

// batch is one command, or none, with the leader's stamp.
func (r *replica) batch(epoch uint64, c shard.Command) []byte {
	r.seq++
	h := shard.Header{Format: shard.FormatVersion, Epoch: epoch, Seq: r.seq, LogTime: r.l.LogTime(r.clock()), Wall: r.w.now}
	b := shard.AppendHeader(nil, h)
	if c.Kind != 0 {
		b = shard.AppendCommand(b, c)
	}
	return b
}

// commit brings a command into the log at once. The reply is what the authority says; there is none if the batch is refused.
func (s *group) commit(r *replica, c shard.Command) (reply shard.Event, ok bool) {
	return s.enter(entry{bytes: r.batch(r.led, c), from: r, life: r.life})
}

// enter is the moment at which an entry is committed.
func (s *group) enter(e entry) (reply shard.Event, ok bool) {
	w := s.w
	s.log = append(s.log, e)
	before := s.authority.LogTime()
	tenures, takes := s.beforeTakeOver(e.bytes)
	for b := range s.served {
		_, s.served[b] = s.authority.Bucket(uint32(b))
	}
	s.out.Reset()
	s.authority.Apply(uint64(len(s.log)), e.bytes, &s.out)
	s.epochs = append(s.epochs, s.authority.Epoch())
	if s.authority.LogTime() < before {
		w.fail("log time of shard %d went back from %d to %d", s.id, before, s.authority.LogTime())
	}
	refused := false
	for i := range s.out.List {
		switch x := &s.out.List[i]; x.Kind {
		case shard.EventReply:
			reply, ok = *x, true
		case shard.EventRefused:
			refused = true
			w.seen["refused batch"]++
		}
	}
	w.truth(s, e.bytes, refused)
	if takes {
		s.afterTakeOver(tenures)
	}
	return reply, ok
}

func (s *group) step() {
	w := s.w
	m := s.master
	p := 0.0 // that the others notice
	switch {
	case !m.up() || m.epoch == 0 || w.now < m.apart:
		p = 0.05
	case !m.running():
		p = 0.02
	}
	if r := s.replicas[w.pick(Elect, uint32(s.id), replicas)]; r.up() && w.now >= r.apart {
		switch {
		case w.fault(Elect, uint32(s.id), w.restless) || w.chance(Elect, uint32(s.id), p):
			s.elect(r)
		case s.accepts() && w.fault(Transfer, uint32(s.id), w.restless):
			s.transfer(r)
		}
	}
	for _, r := range s.replicas {
		if r.up() {
			r.step()
		}
	}
}

func (r *replica) step() {
	w := r.w
	switch {
	case w.fault(Crash, r.n, 0.001):
		r.crash()
		return
	case w.now < r.paused:
		return
	case w.fault(Pause, r.n, 0.002):
		r.paused = w.now + 300 + w.pick(Pause, r.n, 6_000)
		return
	case w.fault(Apart, r.n, 0.002):
		r.apart = w.now + 500 + w.pick(Apart, r.n, 7_000)
	}
	life := r.life
	inbox := r.inbox
	r.inbox = nil
	for _, f := range inbox {
		f()
		if r.carryOut(); r.life != life {
			return
		}
	}
	if w.now >= r.apart && !w.fault(Lag, r.n, 0.2) {
		if r.apply(1 + int(w.pick(Lag, r.n, 30))); r.life != life {
			return
		}
	}
	if w.fault(Snapshot, r.n, 0.003) {
		var b bytes.Buffer
		if err := r.m.BeginSnapshot().WriteTo(&b, new(sync.Mutex)); err != nil {
			w.fail("a snapshot of shard %d is not written: %v", r.s.id, err)
		}
		r.disk, r.diskAt = b.Bytes(), r.applied
	}
	if w.now-r.ticked < 100 {
		return
	}
	r.ticked = w.now
	next, has := r.m.NextDeadline()
	r.l.Tick(r.clock(), r.heard, next, has)
	r.carryOut()
}

// heard is when something was heard on a connection for the last time, and whether it is open.
func (r *replica) heard(id uint64) (uint64, bool) {
	k := r.w.conns[id]
	if k == nil {
		return 0, false
	}
	return k.heard, k.open
}

// apply lets a replica catch up with some of its log, as the driver of a leader does.
func (r *replica) apply(most int) {
	w, life := r.w, r.life
	for ; most > 0 && r.applied < len(r.s.log); most-- {
		e := r.s.log[r.applied]
		r.applied++
		mine := e.from == r && e.life == r.life
		r.out.Reset()
		r.m.Apply(uint64(r.applied), e.bytes, &r.out)
		refused := false
		for _, x := range r.out.List {
			switch x.Kind {
			case shard.EventTookOver:
				r.tookOver(x.Epoch)
			case shard.EventRefused:
				refused = true
				if mine && e.reply != nil {
					e.reply(shard.Event{Status: protocol.StatusUnavailable})
				}
			case shard.EventReply:
				if mine && e.reply != nil {
					e.reply(x)
				}
			case shard.EventAcquireResult, shard.EventLeaseLost:
				w.deliver(r, x)
			case shard.EventSessionAttached:
				k := w.conns[e.conn]
				if !mine || k == nil || !k.open {
					k = &conn{}
				}
				k.session = x.Session
				r.l.Attached(r.clock(), k.id, x.Session, x.Epoch, x.Timeout, x.Text)
			case shard.EventSessionDetached:
				r.l.Detached(r.clock(), x.Session, x.Epoch, x.Text)
			case shard.EventSessionEnded:
				r.l.Ended(r.clock(), x.Session)
				w.tellEnded(r, x)
			case shard.EventRemoteHeld:
				r.l.RemoteHeld(r.clock(), x.Session)
			case shard.EventRemoteIdle:
				r.l.RemoteIdle(r.clock(), x.Session)
			case shard.EventBucketsFrozen:
				w.tellMoved(r, x.First, x.Count)
				r.l.BucketsFrozen(r.clock(), x.First, x.Count)
			case shard.EventBucketsActive:
				r.l.BucketsActive(r.clock())
			case shard.EventBucketsLeft:
				r.l.BucketsLeft(r.clock(), x.First, x.Count)
			}
		}
		if mine && e.note != 0 {
			r.l.Done(r.clock(), e.note, !refused)
		}
		if r.carryOut(); r.life != life {
			return
		}
	}
}

func (r *replica) guests() (list []uint64) {
	r.m.RemoteSessions(func(id, _ uint64) bool {
		list = append(list, id)
		return true
	})
	return list
}

func (r *replica) tookOver(epoch uint64) {
	if epoch == r.epoch {
		r.ruling, r.led = true, epoch
		r.l.Start(r.clock(), epoch, r.m.LogTime(), r.guests())
		return
	}
	if r.l.Leading() {
		r.w.seen["deposed"]++
	}
	r.l.Stop()
	r.ruling, r.led = false, 0
	if epoch > r.epoch {
		r.epoch = 0
	}
}

// carryOut does what the leader wants done. The process may end between any two things.
func (r *replica) carryOut() {
	w, life := r.w, r.life
	ready := r.l.Take()
	n := len(ready.Cut) + len(ready.Pongs) + len(ready.Commands) + len(ready.Messages)
	if n > 0 {
		fmt.Fprintf(w.trace, "%d %d %v\n", w.now, r.n, *ready)
	}
	dies := func() bool {
		if n > 0 && w.fault(CrashMidway, r.n, 0.002) {
			r.crash()
		}
		return r.life != life
	}
	for _, x := range ready.Cut {
		w.seen["cut"]++
		w.cut(x.Conn)
	}
	for _, p := range ready.Pongs {
		if dies() {
			return
		}
		w.pong(r, p)
	}
	for _, c := range ready.Commands {
		if dies() {
			return
		}
		r.propose(c)
	}
	for _, p := range ready.Messages {
		if dies() {
			return
		}
		if w.now >= r.apart {
			w.post(r, p)
		}
	}
	if ready.Barrier != 0 {
		r.barrier(ready.Barrier)
	}
	if ready.Tick && r.l.LogTimeRuns() && w.now >= r.apart {
		r.s.commit(r, shard.Command{})
	}
	if ready.Compare {
		// Asked for by moves. The periodic one is switched off: it would hide what the rest misses.
		r.l.Holdings(r.clock(), r.guests())
		r.carryOut()
	}
}

// propose brings a leader's own command into the log: now, late or never.
func (r *replica) propose(c leader.Command) {
	w, life := r.w, r.life
	w.seen[fmt.Sprintf("proposed %d", c.Kind)]++
	term := r.led
	e := entry{bytes: r.batch(term, c.Command), from: r, life: r.life, note: c.ID}
	switch {
	case w.now < r.apart || w.fault(NotProposed, r.n, 0.1):
		w.after(w.delay(r.n), func() {
			if r.life == life && r.led == term {
				r.act(func() { r.l.Done(r.clock(), c.ID, false) })
			}
		})
	case w.fault(Late, r.n, 0.2):
		w.after(w.pick(Late, r.n, 8_000), func() { r.s.enter(e) })
	default:
		r.s.enter(e)
	}
}

// barrier is a linearizable read of the register: at one moment it sees what is committed, and it ends when the replica has applied that.
func (r *replica) barrier(n uint64) {
	w, life, epoch := r.w, r.life, r.led
	w.after(w.delay(r.n), func() {
		upTo := len(r.s.log)
		ok := w.now >= r.apart && r.s.epochs[upTo-1] == epoch && !w.fault(BarrierFails, r.n, 0.05)
		if !ok {
			w.seen["barrier failed"]++
		}
		var end func()
		end = func() {
			switch {
			case r.life != life:
			case ok && r.applied < upTo:
				w.after(step, end)
			default:
				r.act(func() { r.l.BarrierDone(r.clock(), n, ok, r) })
			}
		}
		w.after(w.delay(r.n), end)
	})
}

// act makes a call of the leader as soon as the replica runs.
func (r *replica) act(f func()) {
	if !r.up() {
		return
	}
	if r.w.now < r.paused {
		r.inbox = append(r.inbox, f)
		return
	}
	f()
	r.carryOut()
}

// post carries a message to a replica of the other shard that takes itself for its leader.
func (w *world) post(from *replica, p leader.Message) {
	copies := 1
	if w.fault(Duplicate, from.n, 0.05) {
		copies = 2
	}
	if w.fault(Lose, from.n, 0.1) {
		copies = 0
	}
	msg := bytes.Clone(p.Bytes)
	for range copies {
		w.after(w.delay(from.n), func() {
			s := w.shards[p.To-1]
			r := s.master
			if other := s.replicas[w.pick(Lose, from.n, replicas)]; other.ruling && !w.calm {
				r = other
			}
			if w.now >= r.apart {
				r.act(func() { r.l.Receive(r.clock(), from.s.id, msg, r) })
			}
		})
	}
}

// HomeBucket, Session and Guest are what the leader looks up.
func (r *replica) HomeBucket(id uint64) (uint64, bool) {
	return r.m.Bucket(protocol.SessionBucket(id))
}

// Session looks up a session at home here.
func (r *replica) Session(id uint64) (shard.SessionView, bool) { return r.m.Session(id) }

// Guest looks up one at home elsewhere.
func (r *replica) RemoteSession(id uint64) (shard.RemoteSessionView, bool) {
	return r.m.RemoteSession(id)
}
