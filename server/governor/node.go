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
// ABORTED (ctx ended while another change was in the way), UNAVAILABLE (ctx ended; the message says
// what became of the change).
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

// DropNode drops a node, and returns when every shard has dropped it and its path is free. Errors
// are *protocol.Error: as CreateNode's, NOT_FOUND, and PRECONDITION_FAILED if it has child nodes.
func (svc Service) DropNode(ctx context.Context, req *protocol.NodeDrop) error {
	if err := protocol.ValidatePath(req.Path); err != nil {
		return err
	}
	res, err := svc.proposeOnce(ctx, func(s *meta.State) (meta.Command, error) {
		n, ok := s.NodeAt(req.Path)
		if !ok || !n.Visible() {
			return &meta.NodeDrop{Path: req.Path}, nil // as in AlterNode
		}
		return &meta.NodeDrop{Path: n.Path, Node: n.ID}, nil
	})
	if err != nil {
		return err
	}
	return svc.awaitApplied(ctx, res, func(s *meta.State) bool {
		_, ok := s.Node(res.Node)
		return !ok
	})
}

// DescribeNode finds a node by path. It reads what this instance has applied, and so sees every
// change that returned here. Errors are *protocol.Error: BAD_REQUEST, NOT_FOUND.
func (svc Service) DescribeNode(path string) (protocol.NodeInfo, error) {
	if err := protocol.ValidatePath(path); err != nil {
		return protocol.NodeInfo{}, err
	}
	state := svc.State()
	n, ok := state.NodeAt(path)
	if !ok || !n.Visible() {
		return protocol.NodeInfo{}, protocol.Errorf(protocol.StatusNotFound, "there is no coordination node %s", path)
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
	mark(protocol.FieldForeign, c.Foreign != "")
	return before&^c.Fields | set&c.Fields
}
