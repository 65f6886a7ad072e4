package admin

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/internal/access"
	"github.com/signalbox-dev/signalbox/client/internal/core"
	"github.com/signalbox-dev/signalbox/client/internal/driver"
	"github.com/signalbox-dev/signalbox/client/internal/handle"
	"github.com/signalbox-dev/signalbox/client/internal/millis"
	"github.com/signalbox-dev/signalbox/protocol"
)

// CountersMode says how finely a node's operations are counted in metrics.
type CountersMode uint8

const (
	CountersAggregated CountersMode = CountersMode(protocol.CountersAggregated) // for each semaphore
	CountersDetailed   CountersMode = CountersMode(protocol.CountersDetailed)   // also for each owner session of a semaphore
)

// NodeConfig is the configuration of a coordination node. In Create and Alter a nil field
// is left as it is, and a pointer to zero resets the field to its default. In a NodeInfo every
// field is set.
type NodeConfig struct {
	SelfCheckPeriod   *time.Duration      // 500 ms .. 10 s, default 1 s
	GracePeriod       *time.Duration      // self-check period + 1 s .. 30 s, default 10 s
	ReadConsistency   *client.Consistency // default Relaxed
	AttachConsistency *client.Consistency // default Strict
	CountersMode      *CountersMode       // default CountersAggregated
	MaxSessions       *uint64             // quota, default 1,000,000
	MaxSemaphores     *uint64             // quota of semaphores, processes and tracks, default 1,000,000
	MaxBytes          *uint64             // quota of names, data, descriptions and payloads in bytes, default 4 GiB
	MaxWaiters        *uint64             // quota of waiting acquires, default 2,000,000
	MaxWatchers       *uint64             // quota of streams and one-shot watches, default 1,000,000
	MaxRequests       *uint64             // requests a second at each instance, 1..10,000,000, default 0: no limit
	MaxPriority       *uint8              // highest priority that an acquire may ask for, 5..9, default 0: any
	SlowWait          *time.Duration      // the server logs an acquire that waited longer; at most 24 h, default 0: off
	// Foreign is for a gateway of another protocol: the settings as it was given them, in its own
	// form, at most 256 bytes. The cluster keeps it and does not read it.
	Foreign *string
}

// NodeInfo describes a coordination node.
type NodeInfo struct {
	ID        uint64 // never reused
	Path      string
	Tier      uint8 // that has the node's data, for good
	TierName  string
	Revision  uint64 // of the configuration
	Config    NodeConfig
	CreatedAt time.Time
}

func (n NodeConfig) wire() (w protocol.NodeConfig, err error) {
	if n.SelfCheckPeriod != nil {
		w.Fields |= protocol.FieldSelfCheckPeriod
		w.SelfCheckPeriod = millis.Of("self-check period", *n.SelfCheckPeriod, &err)
	}
	if n.GracePeriod != nil {
		w.Fields |= protocol.FieldGracePeriod
		w.GracePeriod = millis.Of("session grace period", *n.GracePeriod, &err)
	}
	setField(&w, protocol.FieldReadConsistency, &w.ReadConsistency, (*protocol.Consistency)(n.ReadConsistency))
	setField(&w, protocol.FieldAttachConsistency, &w.AttachConsistency, (*protocol.Consistency)(n.AttachConsistency))
	setField(&w, protocol.FieldCountersMode, &w.CountersMode, (*protocol.CountersMode)(n.CountersMode))
	setField(&w, protocol.FieldMaxSessions, &w.MaxSessions, n.MaxSessions)
	setField(&w, protocol.FieldMaxSemaphores, &w.MaxSemaphores, n.MaxSemaphores)
	setField(&w, protocol.FieldMaxBytes, &w.MaxBytes, n.MaxBytes)
	setField(&w, protocol.FieldMaxWaiters, &w.MaxWaiters, n.MaxWaiters)
	setField(&w, protocol.FieldMaxWatchers, &w.MaxWatchers, n.MaxWatchers)
	setField(&w, protocol.FieldMaxRequests, &w.MaxRequests, n.MaxRequests)
	setField(&w, protocol.FieldMaxPriority, &w.MaxPriority, n.MaxPriority)
	setField(&w, protocol.FieldForeign, &w.Foreign, n.Foreign)
	if n.SlowWait != nil {
		w.Fields |= protocol.FieldSlowWait
		w.SlowWait = millis.Of("slow wait", *n.SlowWait, &err)
	}
	return w, err
}

// Effective is the configuration of a new node that is created with this one: with the defaults of
// what is nil. Errors: ErrBadRequest, as of NodeTree.Create.
func (n NodeConfig) Effective() (NodeConfig, error) {
	given, err := n.wire()
	if err != nil {
		return NodeConfig{}, err
	}
	w := protocol.NodeInfo{}
	if w.Config, err = protocol.DefaultNodeConfig().Merge(given); err != nil {
		return NodeConfig{}, err
	}
	return nodeInfo(&w).Config, nil
}

func setField[T any](w *protocol.NodeConfig, mark uint32, field, value *T) {
	if value != nil {
		w.Fields |= mark
		*field = *value
	}
}

func nodeInfo(w *protocol.NodeInfo) *NodeInfo {
	c := w.Config
	selfCheck, grace, slow := millis.Duration(c.SelfCheckPeriod), millis.Duration(c.GracePeriod),
		millis.Duration(c.SlowWait)
	reads, attaches, counters := client.Consistency(c.ReadConsistency), client.Consistency(c.AttachConsistency),
		CountersMode(c.CountersMode)
	return &NodeInfo{
		ID: w.ID, Path: w.Path, Tier: w.Tier, TierName: w.TierName, Revision: w.Revision,
		CreatedAt: millis.Time(w.CreatedAt),
		Config: NodeConfig{
			SelfCheckPeriod: &selfCheck, GracePeriod: &grace, ReadConsistency: &reads, AttachConsistency: &attaches,
			CountersMode: &counters, MaxSessions: &c.MaxSessions, MaxSemaphores: &c.MaxSemaphores, MaxBytes: &c.MaxBytes,
			MaxWaiters: &c.MaxWaiters, MaxWatchers: &c.MaxWatchers, MaxRequests: &c.MaxRequests, SlowWait: &slow,
			MaxPriority: &c.MaxPriority,
			Foreign:     &c.Foreign,
		},
	}
}

// NodeTree is the coordination nodes of a cluster.
type NodeTree struct{ c handle.Client }

// Nodes returns the coordination nodes of the cluster that a client is connected to.
func Nodes(c *client.Client) NodeTree { return NodeTree{access.Client(c)} }

// NodeOption is an option of Create and Ensure.
type NodeOption func(*nodeOptions)

type nodeOptions struct{ tier string }

// InTier creates the node, and its missing parents, in the tier with this name. It stays there for
// good: sessions and semaphores of the node are on instances of that tier. Default: the first tier
// with data. Errors: ErrBadRequest for a tier that does not exist or holds no data.
func InTier(name string) NodeOption { return func(o *nodeOptions) { o.tier = name } }

// Create creates a coordination node and its missing parents. Errors: ErrBadRequest for an illegal
// path or configuration, ErrAlreadyExists.
//
// A request whose answer is lost is sent again. If another client drops the same path at that
// moment, the node may be created twice; likewise a repeated deletion may delete a node that was
// created again. Processes that create and delete one path concurrently must take a lock first.
//
// While the meta shard or a data shard has no majority, changes of nodes end after a few seconds
// with ErrOutcomeUnknown and ErrUnavailable: the change may still happen.
func (t NodeTree) Create(ctx context.Context, path string, cfg NodeConfig, opts ...NodeOption) (*NodeInfo, error) {
	info, repeated, err := t.create(ctx, path, cfg, opts)
	if err != nil {
		return nil, driver.WithOp("create node", path,
			driver.OutcomeUnknown(repeated && (!driver.Answered(err) ||
				protocol.StatusOf(err) == protocol.StatusAlreadyExists), err))
	}
	return info, nil
}

func (t NodeTree) create(
	ctx context.Context, path string, cfg NodeConfig, opts []NodeOption,
) (info *NodeInfo, repeated bool, err error) {
	config, err := cfg.wire()
	if err != nil {
		return nil, false, err
	}
	var o nodeOptions
	for _, f := range opts {
		f(&o)
	}
	var reply protocol.NodeInfo
	repeated, err = t.c.Call(ctx, core.Target{}, protocol.KindNodeCreate,
		&protocol.NodeCreate{Path: path, Config: config, Tier: o.tier}, &reply)
	return nodeInfo(&reply), repeated, err
}

// Ensure is Create that accepts an existing node, whatever its configuration and tier. It
// goes on until ctx ends while the cluster has no majority; then it fails with ErrOutcomeUnknown.
func (t NodeTree) Ensure(ctx context.Context, path string, cfg NodeConfig, opts ...NodeOption) (*NodeInfo, error) {
	var last error
	repeated := false
	for {
		info, again, err := t.create(ctx, path, cfg, opts)
		repeated = repeated || again
		switch {
		case err == nil:
			return info, nil
		case protocol.StatusOf(err) == protocol.StatusAlreadyExists:
			return t.Describe(ctx, path)
		case isPending(err) && ctx.Err() == nil:
			last = err // the server took its time
			continue
		case last != nil && !driver.Answered(err):
			err = fmt.Errorf("%w (last: %w)", err, last)
		}
		return nil, driver.WithOp("create node", path, driver.OutcomeUnknown(repeated && !driver.Answered(err), err))
	}
}

// Alter replaces the fields that are given. They take effect at once, except that a lower grace
// period comes into force one old grace period later. Errors: ErrBadRequest, ErrNotFound.
func (t NodeTree) Alter(ctx context.Context, path string, cfg NodeConfig) (*NodeInfo, error) {
	config, err := cfg.wire()
	if err != nil {
		return nil, driver.WithOp("alter node", path, err)
	}
	var reply protocol.NodeInfo
	if repeated, err := t.c.Call(ctx, core.Target{}, protocol.KindNodeAlter,
		&protocol.NodeAlter{Path: path, Config: config}, &reply); err != nil {
		return nil, driver.WithOp("alter node", path, driver.OutcomeUnknown(repeated && !driver.Answered(err), err))
	}
	return nodeInfo(&reply), nil
}

// Describe reads a node's effective configuration. Errors: ErrNotFound.
func (t NodeTree) Describe(ctx context.Context, path string) (*NodeInfo, error) {
	info, err := t.c.Node(ctx, path)
	if err != nil {
		return nil, driver.WithOp("describe node", path, err)
	}
	return nodeInfo(info), nil
}

// NodeContents counts what a node has, over all shards.
type NodeContents = protocol.NodeContents

// DeleteOptions say how a node is deleted.
type DeleteOptions struct {
	// Force deletes a node that is in use: its sessions end, and what they hold, its semaphores,
	// configurations, processes, rollouts and rate limits are gone for good.
	Force  bool
	Reason string // for the audit log, 1 to 1,024 bytes with Force
	DryRun bool   // only count what would go
}

// Delete deletes a node, and returns what it had: nothing, unless it is forced. A node made later
// under the path is new and empty, and its fencing tokens go on above those of this one.
//
// Errors: ErrPreconditionFailed if the node has sessions or keeps anything and Force is not set, or
// if there are nodes below it; ErrBadRequest for Force without Reason; ErrNotFound. After a
// repeated request whose first sending deleted the node the counts are 0.
func (t NodeTree) Delete(ctx context.Context, path string, o DeleteOptions) (NodeContents, error) {
	var had NodeContents
	repeated, err := t.c.Call(ctx, core.Target{}, protocol.KindNodeDelete,
		&protocol.NodeDelete{Path: path, Force: o.Force, DryRun: o.DryRun, Reason: o.Reason}, &had)
	if repeated && !o.DryRun && protocol.StatusOf(err) == protocol.StatusNotFound {
		return had, nil // the first sending did it
	}
	if err != nil && !o.DryRun {
		err = driver.OutcomeUnknown(repeated && !driver.Answered(err), err)
	}
	return had, driver.WithOp("delete node", path, err)
}

// List lists the nodes whose path begins with prefix, in order of path. Of the options, After, of
// a path, and MaxItems count. The sequence ends after its first error.
func (t NodeTree) List(ctx context.Context, prefix string, opts ...client.ReadOption) iter.Seq2[NodeInfo, error] {
	return func(yield func(NodeInfo, error) bool) {
		limits := access.ListLimits(opts)
		if limits.Err != nil {
			yield(NodeInfo{}, driver.WithOp("list nodes", prefix, limits.Err))
			return
		}
		req := &protocol.NodeList{Prefix: prefix, Limit: uint32(limits.Most)}
		if len(limits.First) > 0 {
			req.Cursor = append(limits.First, 0) // the cursor is the first path of the page
		}
		left := limits.Most
		for {
			var page protocol.NodeListReply
			if _, err := t.c.Call(ctx, core.Target{}, protocol.KindNodeList, req, &page); err != nil {
				yield(NodeInfo{}, driver.WithOp("list nodes", prefix, err))
				return
			}
			for i := range page.Nodes {
				if left--; !yield(*nodeInfo(&page.Nodes[i]), nil) || left == 0 {
					return
				}
			}
			if len(page.Cursor) == 0 {
				return
			}
			req.Cursor = page.Cursor
		}
	}
}

// isPending reports whether a change of the cluster waits for a shard that does not decide. It may
// still happen.
func isPending(err error) bool {
	e, ok := errors.AsType[*protocol.Error](err)
	return ok && e.Status == protocol.StatusUnavailable && e.Shard != 0
}
