package leader

import (
	"encoding/binary"
	"maps"
	"slices"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard"
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
	trees map[string]*rateLimit // by node and name
	key   []byte
}

// rateLimit has the leases of a tree.
type rateLimit struct {
	node   uint64
	name   string
	leases *ratelimit.Leases
}

// NewRateLimits returns one without leases.
func NewRateLimits() *RateLimits { return &RateLimits{trees: make(map[string]*rateLimit)} }

// leases finds the leases of a tree. Those of an earlier leadership are dropped.
func (r *RateLimits) leases(node uint64, path []byte, v *shard.RateLimitView) *ratelimit.Leases {
	r.key = append(binary.BigEndian.AppendUint64(r.key[:0], node), protocol.LimitRoot(path)...)
	x := r.trees[string(r.key)]
	if x == nil {
		x = &rateLimit{node: node, name: string(protocol.LimitRoot(path))}
		r.trees[string(r.key)] = x
	}
	if x.leases == nil || x.leases.Leadership() != v.Leadership {
		x.leases = ratelimit.NewLeases(v.Leadership, v.Now)
	}
	return x.leases
}

// Refresh answers a refresh of a session's leases. Errors: those of the tree and of
// [ratelimit.Leases.Refresh].
func (r *RateLimits) Refresh(
	m *shard.Machine, logTime, node uint64, path []byte, q *ratelimit.Refresh, out *ratelimit.Reply,
) error {
	v, err := m.RateLimits().View(node, path, logTime)
	if err != nil {
		return err
	}
	return r.leases(node, path, &v).Refresh(v.Now, v.Tree, v.Version, q, out)
}

// Acquire takes an amount of a leaf that is served remotely, see [ratelimit.Leases.Acquire].
func (r *RateLimits) Acquire(
	m *shard.Machine, logTime, node, session, epoch uint64, path []byte, amount uint64, wait bool,
) (retry uint64, err error) {
	v, err := m.RateLimits().View(node, path, logTime)
	if err != nil {
		return 0, err
	}
	return r.leases(node, path, &v).Acquire(v.Now, v.Tree, v.Version, session, epoch, string(path), amount, wait)
}

// Describe reads a resource with all below it. Errors: those of the tree; NOT_FOUND, BAD_REQUEST.
func (r *RateLimits) Describe(m *shard.Machine, logTime uint64, q *protocol.LimitDescribe, out *protocol.LimitStatus) error {
	if err := q.Validate(); err != nil {
		return err
	}
	v, err := m.RateLimits().View(q.Node, q.Path, logTime)
	if err != nil {
		return err
	}
	out.Index = m.AppliedIndex()
	return r.leases(q.Node, q.Path, &v).Describe(v.Now, v.Tree, v.Version, q, out)
}

// Next is the least number of ms after which Tick has something to do. False: nothing, until the
// next call.
func (r *RateLimits) Next(m *shard.Machine, logTime uint64) (in uint64, ok bool) {
	for _, x := range r.trees { // the least: in any order
		if left, due := r.next(m, logTime, x); due && (!ok || left < in) {
			in, ok = left, true
		}
	}
	return in, ok
}

// NextOf is Next for one tree.
func (r *RateLimits) NextOf(m *shard.Machine, logTime, node uint64, path []byte) (in uint64, ok bool) {
	r.key = append(binary.BigEndian.AppendUint64(r.key[:0], node), protocol.LimitRoot(path)...)
	if x := r.trees[string(r.key)]; x != nil {
		return r.next(m, logTime, x)
	}
	return 0, false
}

func (r *RateLimits) next(m *shard.Machine, logTime uint64, x *rateLimit) (in uint64, ok bool) {
	v, err := m.RateLimits().View(x.node, []byte(x.name), logTime)
	if err != nil {
		return 0, false
	}
	at, ok := x.leases.Next()
	return at - min(at, v.Now), ok
}

// Tick does what is due, and calls notify for sessions that are to refresh at once. The order of
// the trees has no effect: they know nothing of each other.
func (r *RateLimits) Tick(m *shard.Machine, logTime uint64, notify func(node uint64, name string, session, revision uint64)) {
	for key, x := range r.trees {
		v, err := m.RateLimits().View(x.node, []byte(x.name), logTime)
		if err != nil {
			delete(r.trees, key)
			continue
		}
		r.leases(x.node, []byte(x.name), &v).Tick(v.Now, v.Tree, v.Version, func(session uint64) {
			notify(x.node, x.name, session, v.Tree.Revision())
		})
	}
}

// All yields the leases of the trees of which there are some, in order of node and name.
func (r *RateLimits) All(yield func(node uint64, l *ratelimit.Leases) bool) {
	for _, key := range slices.Sorted(maps.Keys(r.trees)) {
		if x := r.trees[key]; x.leases != nil && !yield(x.node, x.leases) {
			return
		}
	}
}

// Reset drops all leases: the leadership has ended.
func (r *RateLimits) Reset() { clear(r.trees) }

// Len is how many trees have leases.
func (r *RateLimits) Len() int { return len(r.trees) }
