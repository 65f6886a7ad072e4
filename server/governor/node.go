package governor

import (
	"context"
	"fmt"
	"strings"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard/meta"
)

// CreateNode creates a node and the missing nodes above it, and returns when every shard has them.
// Errors are *protocol.Error: BAD_REQUEST, ALREADY_EXISTS, PRECONDITION_FAILED (too many nodes),
// ABORTED (ctx ended while another change was in the way), UNAVAILABLE (ctx ended; the message has
// the change's state).
func (svc Service) CreateNode(ctx context.Context, req *protocol.NodeCreate) (protocol.NodeInfo, error) {
	if err := protocol.ValidatePath(req.Path); err != nil {
		return protocol.NodeInfo{}, err
	}
	config, err := protocol.DefaultNodeConfig().Merge(req.Config)
	if err != nil {
		return protocol.NodeInfo{}, err
	}
	c := &meta.NodeCreate{
		Path: req.Path, Config: config, SetFields: fieldsSetAfter(0, req.Config),
		Parent: protocol.DefaultNodeConfig(), Wall: svc.wall(),
	}
	var tier meta.Tier
	res, err := svc.proposeOnce(ctx, func(s *meta.State) (_ meta.Command, err error) {
		tier, err = nodeTier(s, req.Tier)
		c.Tier = tier.ID
		return c, err
	})
	if err != nil {
		return protocol.NodeInfo{}, err
	}
	info := protocol.NodeInfo{ID: res.Node, Path: c.Path, Tier: tier.ID, Revision: res.Version, Config: config,
		CreatedAt: c.Wall, TierName: tier.Name}
	return info, svc.awaitApplied(ctx, res, func(s *meta.State) bool {
		n, ok := s.Node(res.Node) // gone: created, and dropped since
		return !ok || n.Phase != meta.Creating
	})
}

// nodeTier is the tier of a new node: the named one, or the first with buckets.
func nodeTier(s *meta.State, name string) (meta.Tier, error) {
	if name == "" || !s.Bootstrapped() { // the meta shard refuses the latter
		t, _ := s.Tier(s.DataTier())
		return t, nil
	}
	t, ok := s.TierByName(name)
	if ok && t.Buckets > 0 {
		return t, nil
	}
	var data []string
	for _, t := range s.Tiers() {
		if t.Buckets > 0 {
			data = append(data, t.Name)
		}
	}
	what := fmt.Sprintf("there is no tier %q", name)
	if ok {
		what = fmt.Sprintf("tier %s holds no data", name)
	}
	return t, protocol.Errorf(protocol.StatusBadRequest, "%s; a node can be in %s", what, strings.Join(data, ", "))
}

// AlterNode replaces the given fields of a node's config, and returns when every shard has it.
// Errors are *protocol.Error: as CreateNode's, and NOT_FOUND.
func (svc Service) AlterNode(ctx context.Context, req *protocol.NodeAlter) (protocol.NodeInfo, error) {
	if err := protocol.ValidatePath(req.Path); err != nil {
		return protocol.NodeInfo{}, err
	}
	var info protocol.NodeInfo
	res, err := svc.proposeOnce(ctx, func(s *meta.State) (meta.Command, error) {
		n, ok := s.NodeAt(req.Path)
		if !ok || !n.Visible() {
			// This instance may not have applied its creation yet: the meta shard decides.
			return &meta.NodeAlter{Path: req.Path}, nil
		}
		config, err := n.Config.Merge(req.Config)
		if err != nil {
			return nil, err
		}
		info = n.Info(s)
		info.Config = config
		return &meta.NodeAlter{Path: n.Path, Node: n.ID, Revision: n.Revision, Config: config,
			SetFields: fieldsSetAfter(n.SetFields, req.Config)}, nil
	})
	if err != nil {
		return protocol.NodeInfo{}, err
	}
	info.Revision = res.Version
	return info, svc.awaitApplied(ctx, res, func(s *meta.State) bool {
		n, ok := s.Node(res.Node)
		return !ok || n.Revision != res.Version || n.Phase != meta.Altering
	})
}

// DeleteNode deletes a node, and returns its contents when every shard has dropped it and its path
// is free. Errors are *protocol.Error: as CreateNode's, NOT_FOUND, and PRECONDITION_FAILED if it
// has child nodes or, without force, contents that somebody may miss. Contents added after the
// count are deleted too.
func (svc Service) DeleteNode(
	ctx context.Context, req *protocol.NodeDelete,
) (contents protocol.NodeContents, err error) {
	if err := protocol.Validate(req); err != nil {
		return contents, err
	}
	var res meta.Result
	for counted := false; !counted; {
		n, visible := svc.State().NodeAt(req.Path)
		if visible = visible && n.Visible(); visible {
			if contents, err = svc.contents(ctx, &n); err != nil && !req.Force {
				return contents, err
			}
		}
		switch {
		case contents.InUse() && !req.Force && !req.DryRun:
			return contents, protocol.Errorf(protocol.StatusPreconditionFailed,
				"coordination node %s is in use: it has %s; end them first, or delete it by force and with a reason", req.Path,
				&contents)
		case req.DryRun && visible:
			return contents, nil
		}
		counted = true
		res, err = svc.proposeOnce(ctx, func(s *meta.State) (meta.Command, error) {
			now, ok := s.NodeAt(req.Path)
			switch {
			case !ok || !now.Visible():
				return &meta.NodeDrop{Path: req.Path}, nil // as in AlterNode
			case !visible || now.ID != n.ID:
				counted = false // another one than was counted
				return nil, protocol.Errorf(protocol.StatusAborted, "coordination node %s is new; retry", req.Path)
			}
			return &meta.NodeDrop{Path: now.Path, Node: now.ID}, nil
		})
		if err != nil && (counted || ctx.Err() != nil) {
			return contents, err
		}
	}
	return contents, svc.awaitApplied(ctx, res, func(s *meta.State) bool {
		_, ok := s.Node(res.Node)
		return !ok
	})
}

// contents counts a node's contents in all shards of its tier.
func (svc Service) contents(ctx context.Context, n *meta.Node) (sum protocol.NodeContents, err error) {
	ctx, cancel := context.WithTimeout(ctx, StepTimeout)
	defer cancel()
	for _, x := range svc.State().Shards() {
		if x.Tier != n.Tier {
			continue
		}
		at, err := svc.shards.Registers(ctx, x.ID, n.ID)
		if err != nil {
			return sum, protocol.Errorf(protocol.StatusUnavailable,
				"what coordination node %s has in shard %d cannot be counted; it is not deleted without force: %v", n.Path, x.ID,
				err)
		}
		c := at.Node
		sum.Sessions += c.Sessions
		sum.Semaphores += c.Semaphores
		sum.Owners += c.Owners
		sum.Waiters += c.Waiters
		sum.Processes += c.Processes
		sum.Tracks += c.Tracks
		sum.Limits += c.Limits
	}
	return sum, nil
}

// DescribeNode finds a node by path. It reads the state applied by this instance, and so sees every
// change that returned here. Errors are *protocol.Error: BAD_REQUEST, NOT_FOUND.
func (svc Service) DescribeNode(path string) (protocol.NodeInfo, error) {
	if err := protocol.ValidatePath(path); err != nil {
		return protocol.NodeInfo{}, err
	}
	state := svc.State()
	n, ok := state.NodeAt(path)
	if !ok || !n.Visible() {
		return protocol.NodeInfo{}, protocol.Refuse(protocol.RefusalNoNode, "there is no coordination node %s", path)
	}
	return n.Info(state), nil
}

// fieldsSetAfter is which fields are set after a config is merged: a zero goes back to the default.
func fieldsSetAfter(before uint32, c protocol.NodeConfig) uint32 {
	set := uint32(0)
	mark := func(field uint32, is bool) {
		if is {
			set |= field
		}
	}
	mark(protocol.FieldSelfCheckPeriod, c.SelfCheckPeriod != 0)
	mark(protocol.FieldGracePeriod, c.GracePeriod != 0)
	mark(protocol.FieldReadConsistency, c.ReadConsistency != 0)
	mark(protocol.FieldAttachConsistency, c.AttachConsistency != 0)
	mark(protocol.FieldCountersMode, c.CountersMode != 0)
	mark(protocol.FieldMaxSessions, c.MaxSessions != 0)
	mark(protocol.FieldMaxSemaphores, c.MaxSemaphores != 0)
	mark(protocol.FieldMaxBytes, c.MaxBytes != 0)
	mark(protocol.FieldMaxWaiters, c.MaxWaiters != 0)
	mark(protocol.FieldMaxWatchers, c.MaxWatchers != 0)
	mark(protocol.FieldMaxRequests, c.MaxRequests != 0)
	mark(protocol.FieldSlowWait, c.SlowWait != 0)
	mark(protocol.FieldMaxPriority, c.MaxPriority != 0)
	mark(protocol.FieldForeign, c.Foreign != "")
	return before&^c.Fields | set&c.Fields
}
