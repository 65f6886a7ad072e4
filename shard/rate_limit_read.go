package shard

import (
	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard/ratelimit"
)

// RateLimits reads the trees of rate limits.
type RateLimits struct{ reader }

// RateLimitView is a tree with the resources of its leases.
type RateLimitView struct {
	Tree       *ratelimit.Tree // for reading, while the machine does not change
	Version    uint64          // rises with each change of the tree
	Leadership ratelimit.Leadership
	Now        uint64 // time of the tree's bucket
	Began      uint64 // the time of it at which the leadership began, as far as is known here; at most Now
}

// View finds the tree of a resource at the log time that the leader would stamp now. Errors:
// WRONG_SHARD; NOT_FOUND for the node or the tree. A deleted tree is
// there until its leases have ended.
func (r RateLimits) View(node uint64, path []byte, logTime uint64) (v RateLimitView, err error) {
	x, err := r.object(kindLimit, node, protocol.LimitRoot(path))
	if err != nil {
		return v, err
	}
	v = RateLimitView{
		Tree: limitOf(x), Version: x.revision,
		Leadership: ratelimit.Leadership{Bucket: x.bucket.epoch, Epoch: r.m.epoch},
		Now:        x.bucket.timeAt(max(logTime, r.m.logTime)),
	}
	if v.Began = v.Now; r.m.epochAt > 0 {
		v.Began = min(x.bucket.timeAt(r.m.epochAt), v.Now) // that of its activation, if that came later
	}
	return v, nil
}

// List reads a page of a node's trees in the active buckets of this shard, in order of name. The
// cursor is the last name of the page before. Errors: BAD_REQUEST, NOT_FOUND.
func (r RateLimits) List(req *protocol.LimitList, out *protocol.LimitListReply) error {
	if err := protocol.Validate(req); err != nil {
		return err
	}
	*out = protocol.LimitListReply{Index: r.m.applied, Limits: out.Limits[:0], Runs: r.m.activeRuns(out.Runs)}
	page := objectPage{node: req.Node, prefix: req.Prefix, cursor: req.Cursor, limit: req.Limit}
	return r.listObjects(kindLimit, page, &out.Cursor, func(x *hostedObject) {
		t := limitOf(x)
		if t.Deleted() {
			return
		}
		config, _, _ := t.Resource(t.Root())
		out.Limits = append(out.Limits, protocol.LimitItem{Name: x.name, Revision: t.Revision(), Config: config,
			Resources: uint64(t.NumResources()), Participants: uint64(t.NumParticipants())})
	})
}

// From yields the trees that are active here, in order of node and name, from the one named on.
func (r RateLimits) From(first uint64, name []byte, yield func(node uint64, name []byte) bool) {
	r.objectsFrom(kindLimit, first, name, func(x *hostedObject) bool { return limitOf(x).Deleted() || yield(x.node.id, x.name) })
}
