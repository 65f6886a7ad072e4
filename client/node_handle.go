package client

import (
	"context"
	"errors"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/signalbox-dev/signalbox/client/core"
	"github.com/signalbox-dev/signalbox/client/internal/driver"
	"github.com/signalbox-dev/signalbox/client/internal/handle"
	"github.com/signalbox-dev/signalbox/client/internal/millis"
	"github.com/signalbox-dev/signalbox/protocol"
)

// Node is a handle of a coordination node, for reading without a session. Its path was resolved
// once: if the node is dropped and created again, the handle's operations return NotFound.
type Node struct {
	c    *Client
	id   uint64
	tier uint8
	path string

	relaxed bool          // reads are RELAXED unless they say otherwise, as of when the node was resolved
	grace   time.Duration // how old a RELAXED read may be
}

func nodeOf(c *Client, path string, info *protocol.NodeInfo) Node {
	return Node{
		c: c, id: info.ID, tier: info.Tier, path: path,
		relaxed: info.Config.ReadConsistency == protocol.Relaxed, grace: millis.Duration(info.Config.GracePeriod),
	}
}

// Path is the path that the node was opened with.
func (n *Node) Path() string { return n.path }

// ID is the node's id, which is never reused.
func (n *Node) ID() uint64 { return n.id }

// Handle is for the packages below this one.
func (n *Node) Handle(handle.Key) handle.Node { return n.handle() }

func (n *Node) handle() handle.Node {
	return handle.Node{Driver: n.c.d, ID: n.id, Tier: n.tier, Path: n.path}
}

// at is the leader of the shard that owns a name.
func (n *Node) at(name string) core.Target { return n.handle().At(name) }

var errNoName = protocol.Errorf(protocol.StatusBadRequest,
	"semaphore name is empty; it must be 1 to %d bytes long", protocol.MaxNameLen)

// checkLives tells a semaphore that does not exist from a node that does not: it returns nil if the
// node lives, and else notFound, or why that could not be told.
func (n *Node) checkLives(ctx context.Context, notFound error) error {
	info, err := n.c.resolve(ctx, n.path)
	switch {
	case err == nil && info.ID == n.id:
		return nil
	case err != nil && !isNotFound(err):
		return withOp("look up node", n.path, err)
	}
	return notFound
}

// Config is the configuration with this name, for reading it.
func (n *Node) Config(name string) ConfigReader { return ConfigReader{n, name} }

// Configs lists the configurations whose name begins with prefix, in order of name; After and
// MaxItems limit it. The sequence ends after its first error.
func (n *Node) Configs(ctx context.Context, prefix string, opts ...ReadOption) iter.Seq2[ConfigInfo, error] {
	if o := readOptionsOf(opts); o.after != "" {
		opts = append(slices.Clone(opts), After(ConfigPrefix+o.after))
	}
	return func(yield func(ConfigInfo, error) bool) {
		for s, err := range n.List(ctx, ConfigPrefix+prefix, opts...) {
			if err != nil {
				yield(ConfigInfo{}, err)
				return
			}
			if !yield(ConfigInfo{Name: strings.TrimPrefix(s.Name, ConfigPrefix), Version: s.Version}, nil) {
				return
			}
		}
	}
}

// Election is the election with this name, for observing it.
func (n *Node) Election(name string) ElectionReader { return ElectionReader{n, name} }

// Service is the service with this name, for finding its members.
func (n *Node) Service(name string) ServiceReader { return ServiceReader{n, name} }

// ForceRelease takes leases of a semaphore away for an operator while the sessions that hold them
// live: from the owners whose fencing tokens are first to last, both included. released is 0 when
// there is no such owner, or not any more, so it may be called again. When the answer is lost, the
// request is sent again, and released leaves out the leases that the first sending took: 0 does not
// say that the call took none. reason, 1 to 1,024 bytes, is sent to the owners, whose leases end
// with ErrLeaseLost, and is kept in the audit log. It needs the right admin.
//
// Besides [Node.KillSession] and a forced delete this is the only way in which units are granted
// that a client still relies on. A client that is disconnected learns of it when it reconnects, or
// when its session's timeout is over. Until then only resources that check fencing tokens are safe:
// those of later grants are higher.
//
// Errors: NotFound without such a semaphore; BadRequest without a reason or for illegal tokens;
// Forbidden; ErrOutcomeUnknown.
func (n *Node) ForceRelease(
	ctx context.Context, name string, first, last uint64, reason string,
) (released uint64, err error) {
	if name == "" {
		return 0, withOp("force release", name, errNoName)
	}
	m := &protocol.ForceRelease{Node: n.id, Name: []byte(name), First: first, Last: last, Reason: reason}
	var reply protocol.ForceReleaseReply
	x := core.Call{Kind: protocol.KindForceRelease, Msg: m, Reply: &reply, To: n.at(name), Writes: true}
	r := n.c.d.Call(ctx, &x)
	repeated, err := x.Repeated() || r.Unknown, driver.Err(r)
	if repeated && errors.Is(err, NotFound) {
		return 0, nil // a first sending may have taken it from the last owner of an ephemeral one
	}
	return reply.Released, withOp("force release", name, outcomeUnknown(repeated && !answered(err), err))
}
