// Package delivery turns what leaves a shard's log into frames on connections: replies, events for
// sessions, fired one-shot watches, and the snapshots and changes of streams.
//
// A Shard is the delivery of one hosted shard. It knows connections by their ids; its Host, which
// serving implements, appends frames to them. A WatchHub has the watchers of semaphores. It owns no
// goroutine and no clock. A Flusher, one for all hubs of an instance, ends their windows.
//
// Locks: the shard's machine lock, then that of a hub or of streams, then whatever the Sender
// takes. Applied, Changed and NodeDropped are called in apply order while the machine is locked
// against reads. OneShot and Page are called inside Shard.Exclusive, so that what was read and what
// is registered belong to one applied index. Any goroutine may call the rest.
package delivery

import (
	"math"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard"
	"github.com/signalbox-dev/signalbox/shard/replica"
)

// Host is the server's side of a hosted shard: its connections, and the sessions that are bound to
// them. Shard.Applied calls it in log order, on the apply goroutine; it must not block.
type Host interface {
	Sender

	// Leading reports whether this instance leads the shard.
	Leading() bool

	// LogTime is the shard's log time. It is called inside Shard.Exclusive.
	LogTime() uint64

	// Reply answers the request at origin with the event of its command.
	Reply(origin *replica.Origin, e *shard.Event)

	// Notify sends an event to the connection on which the session was bound last.
	Notify(session uint64, kind protocol.Kind, m protocol.Message)

	// AcquireResult sends a result likewise. SESSION_EXPIRED of a session that ended lately goes to
	// the connection that it had then, with the reason of its end in place of m.Message.
	AcquireResult(m *protocol.AcquireResult)

	// NotifyMember sends an EventProcess to its member.
	NotifyMember(e *shard.Event)

	// SessionAttached binds a session to the connection of its request, 0 for none here, and takes
	// it from the connections that had it under an older epoch.
	SessionAttached(conn uint64, e *shard.Event)

	// SessionEnded takes a session from all its connections.
	SessionEnded(e *shard.Event)

	// DetachSessions takes the sessions at home in a run of buckets from the connections that
	// attached them here.
	DetachSessions(first, count uint32)

	// Forced writes the audit line of what an operator took by force.
	Forced(index uint64, e *shard.Event)

	// BucketsActive has clients told that the shard, which leads here, serves more buckets.
	BucketsActive()
}

// Viewer shows the machine as it is after the entry that is delivered. A [replica.Shard] is one.
type Viewer interface {
	View(fn func(m *shard.Machine))
}

// Shard delivers what leaves the log of one hosted shard: answers, events for sessions, one-shot
// watches and streams.
type Shard struct {
	id   uint64
	host Host

	Semaphores *WatchHub       // one-shot watches, and streams over semaphores
	Processes  *ProcessStreams // streams over processes
	Tracks     *TrackStreams   // streams over tracks
	Limits     *LimitStreams   // streams over rate limits
	Quota      WatcherQuota    // of coordination nodes, for all of them

	// Of the apply goroutine.
	epoch     uint64 // leader epoch, by the events so far
	result    protocol.AcquireResult
	lost      protocol.LeaseLost
	preempted protocol.LeasePreempted
}

// NewShard creates the delivery of a hosted shard. Its watchers share one quota: that of opt is not
// used.
func NewShard(id uint64, host Host, opt WatchOptions) *Shard {
	d := &Shard{id: id, host: host}
	opt.Quota = &d.Quota
	d.Semaphores = NewWatchHub(id, host, opt)
	d.Processes, d.Tracks, d.Limits = newProcessStreams(d), newTrackStreams(d), newLimitStreams(d)
	return d
}

// Applied delivers the events of one log entry. It runs on the shard's apply goroutine while the
// log waits: it allocates nothing and never blocks.
func (s *Shard) Applied(machine Viewer, index uint64, origins []replica.Origin, ev *shard.Events) {
	for i := range ev.List {
		e := &ev.List[i]
		switch e.Kind {
		case shard.EventReply:
			if e.Command >= 0 && e.Command < len(origins) {
				s.host.Reply(&origins[e.Command], e)
			}
		case shard.EventAcquireResult:
			s.result = protocol.AcquireResult{Session: e.Session, Seq: e.Seq, Status: e.Status, State: e.State,
				OrderID: e.OrderID, Message: e.Text, Grant: e.Grant}
			s.host.AcquireResult(&s.result)
		case shard.EventLeaseLost:
			s.host.Forced(index, e)
			s.lost = protocol.LeaseLost{Session: e.Session, Name: e.Name, OrderID: e.OrderID, Message: e.Text, Cause: e.Cause}
			s.host.Notify(e.Session, protocol.KindLeaseLost, &s.lost)
		case shard.EventLeasePreempted:
			s.preempted = protocol.LeasePreempted{Session: e.Session, Name: e.Name, OrderID: e.OrderID, Preemption: e.Grant.Preemption, Over: e.Flag,
				Now: e.Grant.Now, Until: e.Grant.Until, By: e.Result}
			s.host.Notify(e.Session, protocol.KindLeasePreempted, &s.preempted)
		case shard.EventSessionAttached:
			conn := uint64(0)
			if e.Command >= 0 && e.Command < len(origins) {
				conn = origins[e.Command].Conn
			}
			s.host.SessionAttached(conn, e)
		case shard.EventSessionEnded:
			if e.Reason == protocol.EndKilled {
				s.host.Forced(index, e)
			}
			s.host.SessionEnded(e)
		case shard.EventTookOver:
			s.tookOver(e.Epoch)
		case shard.EventProcess:
			if s.host.Leading() { // members are connected to the leader's instance, and a new leader notifies them again
				s.host.NotifyMember(e)
			}
		case shard.EventNodeDropped:
			s.nodeDropped(e.Node)
		case shard.EventTrackDeleted:
			s.Tracks.deleted(e.Node, e.Name)
		case shard.EventLimitDeleted:
			s.Limits.deleted(e.Node, e.Name)
		case shard.EventBucketsFrozen:
			s.bucketsFrozen(e)
		case shard.EventBucketsActive:
			s.Semaphores.BucketsActive()
			if s.host.Leading() {
				s.host.BucketsActive()
			}
		}
	}
	s.Semaphores.Changed(index, ev.SemaphoreChanges)
	s.Processes.changed(machine, index, ev.ProcessChanges)
	s.Tracks.changed(index, ev.TrackChanges)
}

// tookOver handles a leader's epoch in the log. A new leader has detached every session, so those
// attached here must be attached again. A leader that takes over again keeps the term and detaches
// none. The connections stay: sessions at home in other shards lose nothing.
func (s *Shard) tookOver(epoch uint64) {
	was := s.epoch
	s.epoch = epoch
	if was == 0 || was>>16 == epoch>>16 {
		return
	}
	s.Semaphores.InvalidateOneShots()
	s.host.DetachSessions(0, math.MaxUint32)
}

func (s *Shard) nodeDropped(node uint64) {
	const text = "the coordination node was dropped; nothing is left to watch"
	s.Semaphores.NodeDropped(node)
	s.Processes.Cut(objectsOf(node), protocol.StatusNotFound, text)
	s.Tracks.Cut(objectsOf(node), protocol.StatusNotFound, text)
	s.Limits.Cut(objectsOf(node), protocol.StatusNotFound, text)
}

// bucketsFrozen ends what this shard no longer serves.
func (s *Shard) bucketsFrozen(e *shard.Event) {
	first, count, total := e.First, e.Count, e.Total
	s.host.DetachSessions(first, count)
	in := func(bucket func(uint64, []byte, uint32) uint32) func(uint64, []byte) bool {
		return func(node uint64, name []byte) bool {
			b := bucket(node, name, total)
			return b >= first && b-first < count
		}
	}
	s.Semaphores.BucketsFrozen(in(protocol.Bucket))
	s.Processes.Cut(in(protocol.ProcessBucket), protocol.StatusWrongShard,
		"the process's bucket moves to another shard; fetch the map and ask its instance")
	s.Tracks.Cut(in(protocol.Bucket), protocol.StatusWrongShard,
		"the track's bucket moves to another shard; fetch the map and ask its instance")
	s.Limits.Cut(in(protocol.Bucket), protocol.StatusWrongShard,
		"the rate limit's bucket moves to another shard; fetch the map and ask its instance")
}

// refuseElsewhere refuses streams of what only a leader knows. LeadershipLost takes the streams'
// lock after this, or had it before.
func (s *Shard) refuseElsewhere() error {
	if s.host.Leading() {
		return nil
	}
	return protocol.Errorf(protocol.StatusUnavailable, "shard %d has no leader here now; fetch the map and retry", s.id)
}

// LeadershipLost ends what only a leader delivers.
func (s *Shard) LeadershipLost() {
	s.Semaphores.InvalidateOneShots()
	const text = "the shard is led elsewhere now; fetch the map and watch again"
	s.Tracks.Cut(allObjects, protocol.StatusUnavailable, text)
	s.Limits.Cut(allObjects, protocol.StatusUnavailable, text)
}

// SnapshotInstalled restarts all streams, and invalidates one-shot watches, because the machine
// moved on without events.
func (s *Shard) SnapshotInstalled() {
	s.Semaphores.SnapshotInstalled()
	s.Processes.Restart()
	s.Tracks.Restart()
	s.Limits.Restart()
}

// Page sends the next page that the connection's streams wait for, and reports whether more are
// due. It is called inside Shard.Exclusive; maxBytes is the approximate size of a page over
// semaphores.
func (s *Shard) Page(conn uint64, m *shard.Machine, maxBytes int) (more bool) {
	return s.Semaphores.Page(conn, m.Semaphores(), maxBytes) || s.Processes.Page(conn, m) || s.Tracks.Page(conn, m) ||
		s.Limits.Page(conn, m)
}

// CachedPage sends the next page that the connection's streams wait for, if it was encoded already.
// It reports whether it did, and whether more are due. Unlike Page it needs no lock of the shard.
func (s *Shard) CachedPage(conn uint64, maxBytes int) (sent, more bool) {
	if sent, more = s.Semaphores.CachedPage(conn, maxBytes); sent && !more {
		more = s.Processes.waits(conn) || s.Tracks.waits(conn) || s.Limits.waits(conn)
	}
	return sent, more
}

// CloseStream closes a stream of any kind, if there is one.
func (s *Shard) CloseStream(conn, id uint64) {
	s.Semaphores.Close(conn, id)
	s.Processes.Close(conn, id)
	s.Tracks.Close(conn, id)
	s.Limits.Close(conn, id)
}

// ConnClosed removes all watches of a connection.
func (s *Shard) ConnClosed(conn uint64) {
	s.Semaphores.ConnClosed(conn)
	s.Processes.ConnClosed(conn)
	s.Tracks.ConnClosed(conn)
	s.Limits.ConnClosed(conn)
}

// SessionEnded removes the one-shot watches of a session that has ended.
func (s *Shard) SessionEnded(session uint64) { s.Semaphores.SessionEnded(session) }

// SessionUnbound removes the one-shot watches of a session on a connection that has lost it.
func (s *Shard) SessionUnbound(conn, session uint64, notify bool) {
	s.Semaphores.SessionUnbound(conn, session, notify)
}

// Stale ends the watches in the nodes that match: the machine here may lack what has happened for
// longer than a RELAXED read may. Another replica may be up to date.
func (s *Shard) Stale(which func(node uint64) bool) {
	s.cut(which, protocol.StatusUnavailable, TextStale)
}

// TextStale refuses what watches a machine that may be too old.
const TextStale = "this instance hears nothing of the shard's leader, and what it knows may be too old; watch at another one"

// Close ends all watches, and refuses further ones: the shard no longer runs on this instance. A
// request that found the shard before may come after it.
func (s *Shard) Close() {
	s.Semaphores.shut()
	s.Processes.shut()
	s.Tracks.shut()
	s.Limits.shut()
	s.cut(func(uint64) bool { return true }, protocol.StatusWrongShard, textClosed)
}

const textClosed = "the shard does not run on this instance any more; fetch the map and watch again"

// errClosed refuses a watch of a shard that was closed.
var errClosed = protocol.Errorf(protocol.StatusWrongShard, textClosed)

func (s *Shard) cut(which func(node uint64) bool, status protocol.Status, text string) {
	objects := func(node uint64, _ []byte) bool { return which(node) }
	s.Semaphores.Cut(which, status, text)
	s.Processes.Cut(objects, status, text)
	s.Tracks.Cut(objects, status, text)
	s.Limits.Cut(objects, status, text)
}
