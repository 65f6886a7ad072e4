package sim

import (
	"bytes"
	"iter"
	"slices"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard"
	"github.com/signalbox-dev/signalbox/shard/leader"
)

type pong = leader.Pong

// checkEntry checks what one entry did, at the moment it was committed.
func (w *simulation) checkEntry(s *raftGroup, batch []byte, refused bool) {
	for i := range s.out.List {
		x := &s.out.List[i]
		switch x.Kind {
		case shard.EventSessionEnded:
			w.checkEnd(x)
		case shard.EventSessionAttached:
			if _, known := w.sessions[x.Session]; !known {
				w.sessions[x.Session] = nil
			}
			if w.ended[x.Session] != 0 {
				w.fail("session %s ended and was attached again in shard %d", sessionName(x.Session), s.id)
			}
		case shard.EventSessionDetached:
			if w.ended[x.Session] != 0 {
				w.fail("session %s ended and was detached afterwards in shard %d", sessionName(x.Session), s.id)
			}
		case shard.EventAcquireResult, shard.EventLeaseLost, shard.EventLeasePreempted:
			if at := w.ended[x.Session]; at != 0 && s.wasActive[protocol.SessionBucket(x.Session)] &&
				x.Status != protocol.StatusSessionExpired {
				w.fail("shard %d tells session %s, which ended at %d there, about %s: %v %v",
					s.id, sessionName(x.Session), at-begin, x.Name, x.Kind, x.Status)
			}
		}
	}
	for i := range s.out.List {
		switch x := &s.out.List[i]; x.Kind {
		case shard.EventLeaseLost:
			w.checkBound(x)
		case shard.EventLeasePreempted:
			w.besidePreempted(protocol.Bucket(node, x.Name, buckets))
		}
	}
	for i := range s.out.SemaphoreChanges {
		if x := &s.out.SemaphoreChanges[i]; x.Kind == protocol.ChangeOwnerAdded {
			w.checkGrant(s, string(x.Name), &x.Owner)
		}
	}
	if !refused {
		w.checkReleases(s, batch)
	}
}

// sessionState is a session's committed state before another leader takes over.
type sessionState struct {
	session, deadline uint64
	attached          bool
}

// takenOver is what must not change when another leader takes over.
type takenOver struct {
	sessions []sessionState
	bounds   []ownerBound
}

// beforeTakeOver records the sessions at home in a shard, and its bounds, if an entry is a new leader's first.
func (s *raftGroup) beforeTakeOver(batch []byte) (state takenOver, takes bool) {
	if h, _, err := shard.ReadHeader(batch); err != nil || h.Epoch>>16 <= s.committed.Epoch()>>16 {
		return state, false
	}
	state.bounds = s.bounds(func(uint32) bool { return true })
	for _, id := range sorted(s.w.sessions) {
		if v, ok := s.committed.Sessions().Home(id); ok {
			state.sessions = append(state.sessions, sessionState{id, v.Deadline, v.Attached})
		}
	}
	return state, true
}

// afterTakeOver checks that a leader change prolongs no hold, and of sessions only attached ones, by
// no more than allowed. So no number of changes prolongs a session further: only its client attaches it
// again.
func (s *raftGroup) afterTakeOver(before takenOver) {
	w := s.w
	s.checkBounds(before.bounds)
	for _, x := range before.sessions {
		v, ok := s.committed.Sessions().Home(x.session)
		least, most := s.committed.LogTime()+v.Timeout, s.committed.LogTime()+v.Timeout
		if !s.transferring {
			least, most = least+w.minGrace, most+w.maxGrace
		}
		switch {
		case !ok:
			w.fail("a change of leader ends session %s", sessionName(x.session))
		case v.Attached:
			w.fail("session %s is attached to a new leader", sessionName(x.session))
		case !x.attached && v.Deadline != x.deadline:
			w.fail("a change of leader moves the deadline of session %s, which was detached, from %d to %d",
				sessionName(x.session), x.deadline, v.Deadline)
		case x.attached && (v.Deadline < least || v.Deadline > most):
			w.fail("a change of leader gives session %s, which was attached, until %d, want %d to %d",
				sessionName(x.session), v.Deadline, least, most)
		}
	}
	s.transferring = false
}

// checkReleases checks that only ended sessions are released, and records transfers.
func (w *simulation) checkReleases(s *raftGroup, batch []byte) {
	_, rest, err := shard.ReadHeader(batch)
	if err != nil {
		w.fail("a batch is malformed")
	}
	for len(rest) > 0 {
		var c shard.Command
		if c, rest, err = shard.ReadCommand(rest); err != nil {
			w.fail("a command is malformed")
		}
		switch c.Kind {
		case shard.CmdTransfer:
			s.transferring = bytes.Equal(c.Body, shard.TransferBegins)
			continue
		case shard.CmdRemoteEnded:
		default:
			continue
		}
		ids, err := shard.ReadRemoteEnded(c.Body)
		if err != nil {
			w.fail("a command is malformed")
		}
		for _, x := range ids.Sessions {
			id := x.Session
			w.counts["remote session released"]++
			if home := w.activeShard(protocol.SessionBucket(id)); home != s {
				s.goneSessions[id] = true // of an id at home here, its home decides
			}
			if w.ended[id] == 0 && !w.endedAtHome(id) {
				w.fail("shard %d releases what session %s has, which lives", s.id, sessionName(id))
			}
		}
	}
}

// endedAtHome reports whether the home counts a session as ended already.
func (w *simulation) endedAtHome(id uint64) bool {
	home := w.activeShard(protocol.SessionBucket(id))
	if home == nil {
		return false
	}
	_, lives := home.committed.Sessions().Home(id)
	return !lives
}

func (w *simulation) checkEnd(x *shard.Event) {
	if w.ended[x.Session] != 0 {
		w.fail("session %s ended twice", sessionName(x.Session))
	}
	w.ended[x.Session] = w.now
	if x.Reason == protocol.EndExpired {
		w.counts["expired"]++
		for h := range w.living() {
			if h.live() && h.s.ID == x.Session && h.believes() {
				w.fail("session %s expired, and its client relies on it", sessionName(x.Session))
			}
		}
	} else {
		w.counts["stopped"]++
	}
}

// checkGrant checks a grant. The token is newer than any before it, and no client without room
// relies on an older one.
func (w *simulation) checkGrant(s *raftGroup, name string, o *protocol.Owner) {
	w.counts["grant"]++
	if last := w.tokens[name]; o.OrderID <= last {
		w.fail("%s is granted with token %d after %d", name, o.OrderID, last)
	}
	w.tokens[name] = o.OrderID
	if s.goneSessions[o.Session] && w.routes.owner[protocol.SessionBucket(o.Session)] != s.id {
		w.fail("shard %d grants %s to session %s, which it has released for being gone", s.id, name, sessionName(o.Session))
	}
	i := slices.IndexFunc(semaphores[:], func(x semaphore) bool { return x.name == name })
	free := semaphores[i].limit
	if o.Count > free {
		w.fail("%s is granted for %d of %d", name, o.Count, free)
	}
	free -= o.Count
	for _, b := range w.beliefs()[i] {
		if b.h.s.ID == o.Session {
			continue
		}
		if b.x.count > free {
			w.fail("%s is granted to session %s with token %d, and session %s relies on its own, %d",
				name, sessionName(o.Session), o.OrderID, sessionName(b.h.s.ID), b.x.lease.Token)
		}
		free -= b.x.count
	}
}

// living are the holders of all processes that run or pause.
func (w *simulation) living() iter.Seq[*holder] {
	return func(yield func(*holder) bool) {
		for _, c := range w.clients {
			for _, h := range c.holders {
				if !c.dead && !yield(h) {
					return
				}
			}
		}
	}
}

// belief is a lease that a program relies on.
type belief struct {
	h *holder
	x *call
}

// beliefs are what programs rely on at this moment, by semaphore, under sessions that are not
// contested. They are good until the next call.
func (w *simulation) beliefs() *[len(semaphores)][]belief {
	for i := range w.believed {
		w.believed[i] = w.believed[i][:0]
	}
	for h := range w.living() {
		if h.s == nil || w.contested[h.s.ID] {
			continue
		}
		asked, believes := false, false
		for i := range h.slots {
			t := &h.slots[i]
			if !t.acquire.held() || !h.c.withinBound(&t.acquire.lease) {
				continue
			}
			if !asked {
				asked, believes = true, h.believes()
			}
			if believes {
				w.believed[t.name] = append(w.believed[t.name], belief{h, t.acquire})
			}
		}
	}
	return &w.believed
}

// check checks what must hold at any moment.
func (w *simulation) check() {
	for b := range uint32(buckets) {
		active := 0
		for _, s := range w.shards {
			if _, ok := s.committed.Bucket(b); ok {
				active++
			}
		}
		if active > 1 {
			w.fail("bucket %d is active in %d shards", b, active)
		}
	}
	beliefs := w.beliefs()
	w.checkBeliefs(beliefs)
	if w.now%(8*step) == 0 {
		w.checkHoldings(beliefs)
	}
	if w.now%(80*step) == 0 {
		w.checkReplicas()
	}
}

// checkBeliefs checks that what programs rely on at this moment fits into the limit, and that a
// session relies on one lease of a name at most.
func (w *simulation) checkBeliefs(beliefs *[len(semaphores)][]belief) {
	for i := range semaphores {
		free := semaphores[i].limit
		list := beliefs[i]
		for j, b := range list {
			if b.x.count > free {
				w.fail("clients rely on more of %s than there is", semaphores[i].name)
			}
			free -= b.x.count
			if slices.ContainsFunc(list[:j], func(x belief) bool { return x.h == b.h }) {
				w.fail("session %s has two leases of %s", sessionName(b.h.s.ID), semaphores[i].name)
			}
			for _, other := range list[:j] {
				w.checkSlots(semaphores[i].name, b, other)
			}
		}
	}
}

// checkHoldings checks that what programs rely on is theirs: no lease is believed in that is not
// granted.
func (w *simulation) checkHoldings(beliefs *[len(semaphores)][]belief) {
	var out protocol.DescribeReply
	for i := range semaphores {
		s := w.activeShard(protocol.Bucket(node, []byte(semaphores[i].name), buckets))
		if s == nil {
			continue
		}
		for j, b := range beliefs[i] {
			session := b.h.s.ID
			if w.ended[session] != 0 {
				continue
			}
			if j == 0 || out.Owners == nil {
				out = protocol.DescribeReply{}
				req := protocol.Describe{Node: node, Name: []byte(semaphores[i].name), Flags: protocol.WithOwners}
				if err := s.committed.Semaphores().Describe(&req, &out); err != nil {
					w.fail("%s is held, and shard %d says: %v", semaphores[i].name, s.id, err)
				}
			}
			if !slices.ContainsFunc(out.Owners, func(o protocol.Owner) bool {
				return o.Session == session && o.OrderID == b.x.lease.Token && o.Count >= b.x.count
			}) {
				w.fail("%s of the living session %s, token %d, is not held any more in shard %d",
					semaphores[i].name, sessionName(session), b.x.lease.Token, s.id)
			}
		}
	}
}

// checkReplicas checks each machine's own invariants, and that machines that have applied the same
// have the same digest.
func (w *simulation) checkReplicas() {
	for _, s := range w.shards {
		if err := s.committed.Check(); err != nil {
			w.fail("shard %d: %v", s.id, err)
		}
		want := s.committed.Digest()
		for _, r := range s.replicas {
			if r.applied == len(s.log) && r.m.Digest() != want {
				w.fail("a replica of shard %d has applied the same log and has another digest", s.id)
			}
		}
	}
}

// steadyTime is how long a client must still rely on its session when faults stop, so that nothing
// is left that may cost it the session: in that time it attaches again if it has to.
const steadyTime = 1_500 * time.Millisecond

// steadySessions are those that their clients must not lose any more. The home is led and does not
// move, and no other process restores the session.
func (w *simulation) steadySessions() map[uint64]bool {
	steady := map[uint64]bool{}
	for h := range w.living() {
		h.c.e.Clocks(h.c.clock(), h.c.wall(), 0) // a jump of the wall clock takes what a program may rely on
		if !h.believes() || w.ended[h.s.ID] != 0 || w.contested[h.s.ID] || h.c.e.Remaining(h.c.clock(), h.s) < steadyTime {
			continue
		}
		bucket := protocol.SessionBucket(h.s.ID)
		home := w.activeShard(bucket)
		if home != nil && home.accepts() && (w.move == nil || w.move.bucket != bucket) {
			steady[h.s.ID] = true
		}
	}
	return steady
}

// checkAtRest checks what must hold a while after the last fault: all living clients go on, and
// nothing is left of what ended. steady are the sessions that were safe when faults stopped.
func (w *simulation) checkAtRest(steady map[uint64]bool) {
	for _, s := range w.shards {
		if !s.leader.leading {
			w.fail("shard %d has no leader", s.id)
		}
		for _, m := range []*shard.Machine{s.committed, s.leader.m} {
			m.Sessions().Remotes(func(id, _ uint64) bool {
				if at := w.ended[id]; at != 0 {
					w.fail("session %s ended at %d, and shard %d still holds something for it", sessionName(id), at-begin, s.id)
				}
				return true
			})
		}
	}
	relied := map[uint64]bool{}
	for h := range w.living() {
		if h.believes() {
			relied[h.s.ID] = true
		}
	}
	for _, id := range sorted(w.sessions) {
		if w.ended[id] == 0 && !relied[id] {
			w.fail("nobody relies on session %s, and it has not ended", sessionName(id))
		}
	}
	if w.move != nil {
		w.fail("the move of bucket %d does not end: %s", w.move.bucket, w.move.phase)
	}
	for _, id := range sorted(steady) {
		if !relied[id] {
			w.fail("session %s was safe when faults stopped, and its client has lost it", sessionName(id))
		}
		w.counts["steady"]++
	}
	for h := range w.living() {
		if h.start != nil && !h.start.done || h.close != nil && !h.close.done {
			w.fail("a start or a close of holder %d is not answered", h.n)
		}
		for i := range h.slots {
			t := &h.slots[i]
			if t.acquire != nil && !t.acquire.done || t.other != nil && !t.other.done {
				w.fail("session %s asks for %s, and is not answered", sessionName(h.s.ID), semaphores[t.name].name)
			}
		}
	}
	w.checkQueuesAtRest()
	w.checkWatchersAtRest()
	w.checkReplicas()
}

// checkQueuesAtRest checks that nobody waits any more: nothing is asked for after the last fault,
// and the rest is longer than the timeout of any wait. And each owner's lease is a program's: what
// was given up has been given back.
func (w *simulation) checkQueuesAtRest() {
	for i := range semaphores {
		name := []byte(semaphores[i].name)
		s := w.activeShard(protocol.Bucket(node, name, buckets))
		if s == nil {
			w.fail("no shard serves %s", name)
		}
		var out protocol.DescribeReply
		req := protocol.Describe{Node: node, Name: name, Flags: protocol.WithOwners | protocol.WithWaiters}
		if s.committed.Semaphores().Describe(&req, &out) != nil {
			continue
		}
		for _, x := range out.Waiters {
			w.fail("session %s waits for %s, and no call is for it", sessionName(x.Session), name)
		}
		beliefs := w.beliefs()[i]
		for _, o := range out.Owners {
			if !w.contested[o.Session] && !slices.ContainsFunc(beliefs, func(b belief) bool {
				return b.h.s.ID == o.Session && b.x.lease.Token == o.OrderID
			}) {
				w.fail("session %s owns %s with token %d, and no lease is for it", sessionName(o.Session), name, o.OrderID)
			}
		}
	}
}
