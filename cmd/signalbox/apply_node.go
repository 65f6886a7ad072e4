package main

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/signalbox-dev/signalbox/client/admin"
	"github.com/signalbox-dev/signalbox/cmd/signalbox/desired"
	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/spf13/cobra"
)

// nodeObject describes a node, of a document or a cluster.
type nodeObject struct {
	config admin.NodeConfig // effective
	tier   string           // of a new node; empty: the default
}

func readNode(o *desired.Object, entries []desired.Entry) error {
	c := new(cobra.Command)
	var x nodeObject
	c.Flags().StringVar(&x.tier, "tier", "", "")
	given := nodeFlags(c.Flags(), "")
	if err := readFlags(c, desired.Node, entries); err != nil {
		return err
	}
	var err error
	if x.config, err = given.Effective(); err != nil {
		return err
	}
	showNode(o, &x)
	return nil
}

var defaultNode, _ = admin.NodeConfig{}.Effective()

func showNode(o *desired.Object, x *nodeObject) {
	x.config.Foreign = nil // it stays
	o.Config = x
	o.Settings = []desired.Setting{{Key: "tier", Value: desired.Text(x.tier), Default: x.tier == ""}}
	for _, f := range nodeFields {
		v, def := nodeValue(f.value(&x.config)), nodeValue(f.value(&defaultNode))
		o.Settings = append(o.Settings, desired.Setting{Key: f.flag, Value: v, Default: v.String() == def.String()})
	}
}

func nodeValue(v any) desired.Value {
	if d, ok := v.(time.Duration); ok {
		return shortSpan(d)
	}
	return desired.Word(cell(v))
}

func (l *liveCluster) showNode(o *desired.Object, info *admin.NodeInfo) {
	x := nodeObject{config: info.Config}
	if info.TierName != l.tier {
		x.tier = info.TierName
	}
	showNode(o, &x)
	o.Revision = info.Revision
}

func (l *liveCluster) changeNode(ctx context.Context, c *desired.Change) (err error) {
	switch nodes := admin.Nodes(l.c); c.Op {
	case desired.Create:
		x := c.Want.Config.(*nodeObject)
		var opts []admin.NodeOption
		if x.tier != "" {
			opts = append(opts, admin.InTier(x.tier))
		}
		_, err = nodes.Create(ctx, c.Key.Node, x.config, opts...)
	case desired.Alter:
		_, err = nodes.Alter(ctx, c.Key.Node, c.Want.Config.(*nodeObject).config)
	case desired.Delete:
		return l.dropNode(ctx, c.Key.Node)
	}
	return err
}

// dropNode removes a node that has nothing. It waits for the ends of sessions of other runs of
// apply, or of one that was killed.
func (l *liveCluster) dropNode(ctx context.Context, path string) error {
	if err := l.leave(ctx, path); err != nil {
		return err
	}
	for {
		_, err := admin.Nodes(l.c).Delete(ctx, path, admin.DeleteOptions{Reason: l.reason})
		if !errors.Is(err, protocol.StatusPreconditionFailed) {
			return err
		}
		others, failed := l.otherSessions(ctx, path)
		if failed != nil || others > 0 {
			return err
		}
		has, failed := admin.Nodes(l.c).Delete(ctx, path, admin.DeleteOptions{DryRun: true})
		if failed != nil || has.Sessions == 0 && has.InUse() {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// otherSessions counts the sessions of a node that are not of runs of apply.
func (l *liveCluster) otherSessions(ctx context.Context, path string) (n uint64, err error) {
	node, err := l.node(ctx, path)
	if err != nil {
		return 0, err
	}
	for s, err := range admin.OfNode(node).Sessions(ctx) {
		if err != nil {
			return 0, err
		}
		if !strings.HasPrefix(s.Description, "apply@") {
			n++
		}
	}
	return n, nil
}

// checkTiers refuses nodes in tiers that there are not.
func (l *liveCluster) checkTiers(ctx context.Context, changes []*desired.Change) error {
	m, err := admin.New(l.c).Map(ctx)
	if err != nil {
		return err
	}
	var names []string
	for _, t := range m.Tiers {
		if t.Buckets > 0 {
			names = append(names, t.Name)
		}
	}
	for _, c := range changes {
		if c.Kind != desired.Node || c.Op != desired.Create {
			continue
		}
		if tier := cmp.Or(c.Want.Config.(*nodeObject).tier, l.tier); !slices.Contains(names, tier) {
			return c.Want.At.Errorf("node %s: there is no tier %s with data in the cluster; there is %s",
				c.Key.Node, tier, strings.Join(names, ", "))
		}
	}
	return nil
}
