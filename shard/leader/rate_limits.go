package leader

import (
	"encoding/binary"
	"maps"
	"slices"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard"
	"github.com/signalbox-dev/signalbox/shard/container"
	"github.com/signalbox-dev/signalbox/shard/ratelimit"
)

// RateLimits is the leader's part of rate limits: the leases of all trees of a shard. They are soft
// state, of one leadership each; see package ratelimit. It is not safe for concurrent use. The
// driver gives the machine to each call while Apply is kept away, and calls it only with a machine
// whose epoch is this replica's own.
//
// Refresh and Acquire grant rates, so each needs a read barrier that began after the request came;
// logTime is that of the beginning. Times never go back.
type RateLimits struct {
	trees map[string]*rateLimit      // by node and name
	due   container.Heap[*rateLimit] // those that have something to do, by time
	admit container.Heap[admitting]  // those that have calls to admit, by time
	lost  []ratelimit.Origin         // calls that nobody admits any more
	sweep int                        // at so many trees those that are gone are looked for

	key     []byte       // scratch
	ticking []*rateLimit // likewise; empty between calls
}

// rateLimit has the leases of a tree.
type rateLimit struct {
	node   uint64
	name   string
	leases *ratelimit.Leases
	place  int32 // in the heap of those that are due
	admits int32 // in the heap of those that have calls to admit
}

// NewRateLimits returns one without leases.
func NewRateLimits() *RateLimits {
	return &RateLimits{trees: make(map[string]*rateLimit), sweep: sweepFirst}
}

// sweepFirst is how many trees are kept without a look for those that are gone. After it each look is
// made when their number has doubled.
const sweepFirst = 64

// limit finds a tree's leases. Those of an earlier leadership are dropped.
func (r *RateLimits) limit(m *shard.Machine, logTime, node uint64, path []byte) (*rateLimit, shard.RateLimitView, error) {
	v, err := m.RateLimits().View(node, path, logTime)
	if err != nil {
		return nil, v, err
	}
	root := protocol.LimitRoot(path)
	x := r.trees[string(r.keyOf(node, root))]
	if x == nil {
		if len(r.trees) >= r.sweep {
			r.dropGone(m, logTime)
		}
		x = &rateLimit{node: node, name: string(root)}
		r.trees[string(r.keyOf(node, root))] = x
	}
	if x.leases == nil || x.leases.Leadership() != v.Leadership {
		r.lose(x)
		x.leases = ratelimit.NewLeases(v.Leadership, v.Began)
	}
	return x, v, nil
}

func (r *RateLimits) keyOf(node uint64, root []byte) []byte {
	r.key = append(binary.BigEndian.AppendUint64(r.key[:0], node), root...)
	return r.key
}

// dropGone drops what is known of trees that are not here any more. The order has no effect.
func (r *RateLimits) dropGone(m *shard.Machine, logTime uint64) {
	for _, x := range r.trees {
		if _, err := m.RateLimits().View(x.node, []byte(x.name), logTime); err != nil {
			r.drop(x)
		}
	}
	r.sweep = max(2*len(r.trees), sweepFirst)
}

func (r *RateLimits) drop(x *rateLimit) {
	delete(r.trees, string(r.keyOf(x.node, []byte(x.name))))
	r.due.Remove(x)
	r.admit.Remove(admitting{x})
	r.lose(x)
}

// schedule notes when a tree has something to do.
func (r *RateLimits) schedule(x *rateLimit, logTime, now uint64) {
	at, ok := x.leases.Next()
	if ok {
		r.due.Set(x, logTime+at-min(at, now))
	} else {
		r.due.Remove(x)
	}
	if at, ok := x.leases.AdmitAt(); ok { // perhaps before now: a barrier that has begun since then will do
		r.admit.Set(admitting{x}, max(logTime+at, now)-now)
	} else {
		r.admit.Remove(admitting{x})
	}
}

// Refresh answers a refresh of a session's leases. Errors: those of the tree and of
// [ratelimit.Leases.Refresh].
func (r *RateLimits) Refresh(
	m *shard.Machine, logTime, node uint64, path []byte, q *ratelimit.Refresh, out *ratelimit.Reply,
) error {
	x, v, err := r.limit(m, logTime, node, path)
	if err != nil {
		return err
	}
	defer r.schedule(x, logTime, v.Now)
	return x.leases.Refresh(v.Now, v.Tree, v.Version, q, out)
}

// Acquire takes a call that waits for units, which Admit answers; see [ratelimit.Leases.Acquire].
func (r *RateLimits) Acquire(m *shard.Machine, logTime, node uint64, path []byte, q *ratelimit.Acquire) error {
	x, v, err := r.limit(m, logTime, node, path)
	if err != nil {
		return err
	}
	defer r.schedule(x, logTime, v.Now)
	return x.leases.Acquire(v.Now, v.Tree, v.Version, q)
}

// Admit admits and answers the calls of all trees that can be admitted. It needs a read barrier that began at
// logTime; now is the log time at present. Units are to be used within a time that counts from the barrier's
// beginning: behind one that took half of that time nobody is admitted, and the next one is waited for.
func (r *RateLimits) Admit(m *shard.Machine, logTime, now uint64, answer func(*ratelimit.Answer) bool) {
	r.AnswerLost(answer)
	if now >= logTime+protocol.MaxLimitWithin/2 {
		return
	}
	r.ticking = r.ticking[:0]
	for r.admit.Len() > 0 && r.admit.First().Key <= logTime {
		r.ticking = append(r.ticking, r.admit.Pop().Item.rateLimit)
	}
	defer func() { // after a panic: those behind it
		for _, x := range r.ticking {
			r.admit.Set(admitting{x}, logTime)
		}
	}()
	for len(r.ticking) > 0 {
		x := r.ticking[len(r.ticking)-1]
		r.ticking = r.ticking[:len(r.ticking)-1]
		r.admitTree(m, logTime, x, answer)
	}
}

// admitTree is Admit of a tree. After a panic its calls are answered that they are to ask again.
func (r *RateLimits) admitTree(m *shard.Machine, logTime uint64, x *rateLimit, answer func(*ratelimit.Answer) bool) {
	_, v, err := r.limit(m, logTime, x.node, []byte(x.name))
	if err != nil {
		r.drop(x)
		return
	}
	done := false
	defer func() {
		if !done {
			r.lost = slices.AppendSeq(r.lost, x.leases.Abandon)
		}
		r.schedule(x, logTime, v.Now)
	}()
	x.leases.Admit(v.Now, v.Tree, v.Version, answer)
	done = true
}

// AdmitIn is the least number of ms after which Admit has something to do. False: nothing, until the next call.
func (r *RateLimits) AdmitIn(logTime uint64) (in uint64, ok bool) {
	if len(r.lost) > 0 {
		return 0, true
	}
	if r.admit.Len() == 0 {
		return 0, false
	}
	at := r.admit.First().Key
	return at - min(at, logTime), true
}

// AnswerLost answers the calls of trees that are led elsewhere now.
func (r *RateLimits) AnswerLost(answer func(*ratelimit.Answer) bool) {
	for len(r.lost) > 0 {
		from := r.lost[0]
		r.lost = r.lost[1:] // before: nothing is answered twice
		answer(&ratelimit.Answer{To: from, Err: errLedElsewhere})
	}
	r.lost = nil
}

// lose notes that nobody admits the calls of a tree any more.
func (r *RateLimits) lose(x *rateLimit) {
	if x.leases != nil {
		r.lost = slices.AppendSeq(r.lost, x.leases.Held)
	}
}

var errLedElsewhere = protocol.Errorf(protocol.StatusUnavailable, "the shard is led elsewhere now; fetch the map and send it again")

// Users are the sessions that have a resource open, as far as they have said so, and at most so
// many of them.
func (r *RateLimits) Users(m *shard.Machine, logTime, node uint64, path []byte,
	most int) (users []uint64, count int) {
	x, v, err := r.limit(m, logTime, node, path)
	if err != nil {
		return nil, 0
	}
	defer r.schedule(x, logTime, v.Now)
	x.leases.Observe(v.Now, v.Tree, v.Version)
	return x.leases.Users(v.Tree, string(path), most)
}

// Describe reads a resource with all below it. Errors: those of the tree; NOT_FOUND, BAD_REQUEST.
func (r *RateLimits) Describe(m *shard.Machine, logTime uint64, q *protocol.LimitDescribe, out *protocol.LimitStatus) error {
	if err := protocol.Validate(q); err != nil {
		return err
	}
	x, v, err := r.limit(m, logTime, q.Node, q.Path)
	if err != nil {
		return err
	}
	defer r.schedule(x, logTime, v.Now)
	out.Index = m.AppliedIndex()
	return x.leases.Describe(v.Now, v.Tree, v.Version, q, out)
}

// Next is the least number of ms after which Tick has something to do. False: nothing, until the
// next call.
func (r *RateLimits) Next(logTime uint64) (in uint64, ok bool) {
	if r.due.Len() == 0 {
		return 0, false
	}
	at := r.due.First().Key
	return at - min(at, logTime), true
}

// Tick does what is due, and calls notify for sessions that are to refresh at once. The trees know
// nothing of each other.
func (r *RateLimits) Tick(m *shard.Machine, logTime uint64, notify func(node uint64, name string, session, revision uint64)) {
	r.ticking = r.ticking[:0]
	for r.due.Len() > 0 && r.due.First().Key <= logTime {
		r.ticking = append(r.ticking, r.due.Pop().Item)
	}
	for _, x := range r.ticking {
		_, v, err := r.limit(m, logTime, x.node, []byte(x.name))
		if err != nil {
			r.drop(x)
			continue
		}
		x.leases.Tick(v.Now, v.Tree, v.Version, func(session uint64) {
			notify(x.node, x.name, session, v.Tree.Revision())
		})
		r.schedule(x, logTime, v.Now)
	}
	clear(r.ticking)
}

// All yields the leases of the trees of which there are some, in order of node and name, each as of
// now, a time of its bucket.
func (r *RateLimits) All(m *shard.Machine, logTime uint64, yield func(node, now uint64, l *ratelimit.Leases) bool) {
	for _, key := range slices.Sorted(maps.Keys(r.trees)) {
		x := r.trees[key]
		v, err := m.RateLimits().View(x.node, []byte(x.name), logTime)
		if err != nil || x.leases.Leadership() != v.Leadership {
			continue
		}
		x.leases.Observe(v.Now, v.Tree, v.Version)
		r.schedule(x, logTime, v.Now)
		if !yield(x.node, v.Now, x.leases) {
			return
		}
	}
}

// Reset drops all leases: the leadership has ended. AnswerLost answers the calls that wait.
func (r *RateLimits) Reset() {
	for _, key := range slices.Sorted(maps.Keys(r.trees)) {
		r.lose(r.trees[key])
	}
	clear(r.trees)
	r.due, r.admit, r.sweep = container.Heap[*rateLimit]{}, container.Heap[admitting]{}, sweepFirst
}

// Len is how many trees have leases.
func (r *RateLimits) Len() int { return len(r.trees) }

// Position implements container.Item.
func (x *rateLimit) Position() *int32 { return &x.place }

// Before implements container.Item: the trees know nothing of each other.
func (x *rateLimit) Before(*rateLimit) bool { return false }

// admitting is a tree in the heap of those that have calls to admit.
type admitting struct{ *rateLimit }

// Position implements container.Item.
func (x admitting) Position() *int32 { return &x.admits }

// Before implements container.Item.
func (admitting) Before(admitting) bool { return false }
