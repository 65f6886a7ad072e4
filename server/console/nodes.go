package console

import (
	"cmp"
	"context"
	"net/url"
	"strings"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/admin"
	"github.com/signalbox-dev/signalbox/protocol"
)

// pageSize is how many items a page of a list has.
const pageSize = 100

// nodesPage lists coordination nodes as a tree.
func nodesPage(ctx context.Context, v *viewer, q url.Values) (*page, error) {
	after := q.Get("after")
	p := &page{
		Section: "Nodes", Title: "Nodes",
		Lead: "A node is a namespace: it has semaphores, sessions, rollouts and processes of its own, and bounds for them.",
	}
	t := newTable("nodes", "Nodes", "You may see no node.",
		col("Path"), col("Reads"), numCol("Grace period"), numCol("Sessions, at most"), numCol("Semaphores, at most"),
		numCol("Bytes, at most"), numCol("Waiters, at most"), col("Created"))
	if after != "" {
		t.First = "/nodes"
	}
	err := fill(&t, admin.Nodes(v.client).List(ctx, "", client.After(after), client.MaxItems(pageSize+1)), func(n *admin.NodeInfo) row {
		depth := min(strings.Count(strings.Trim(n.Path, "/"), "/"), 4)
		path := cell{Text: visible(n.Path), Kind: "name", Href: address("/node", "node", n.Path)}
		if depth > 0 {
			path.Kind += " d" + string(rune('0'+depth))
		}
		return row{Key: n.Path, Cells: []cell{
			path, text(consistencyText(*n.Config.ReadConsistency)), duration(*n.Config.GracePeriod),
			number(*n.Config.MaxSessions), number(*n.Config.MaxSemaphores),
			{Text: bytesText(*n.Config.MaxBytes), Kind: "num"}, number(*n.Config.MaxWaiters), since(n.CreatedAt),
		}}
	}, func(last *admin.NodeInfo) string { return address("/nodes", "after", last.Path) })
	p.Tables = []table{t}
	return p, err
}

// nodePage shows a node's configuration and what it uses of its quotas.
func nodePage(ctx context.Context, v *viewer, q url.Values) (*page, error) {
	path, err := nodeOf(q)
	if err != nil {
		return nil, err
	}
	info, err := admin.Nodes(v.client).Describe(ctx, path)
	if err != nil {
		return nil, err
	}
	p := &page{Section: "Nodes", Node: path, Title: "Node", Name: visible(path), Crumbs: []link{{"Nodes", "/nodes"}}}
	c := info.Config
	requests := quiet("no limit")
	if *c.MaxRequests > 0 {
		requests = number(*c.MaxRequests)
	}
	counters := "for the whole node"
	if *c.CountersMode == admin.CountersDetailed {
		counters = "for each semaphore"
	}
	p.Facts = []fact{
		{"reads", "Reads", text(consistencyText(*c.ReadConsistency))},
		{"attaches", "Attaches", text(consistencyText(*c.AttachConsistency))},
		{"check", "Self-check period", text(durationText(*c.SelfCheckPeriod))},
		{"grace", "Grace period", text(durationText(*c.GracePeriod))},
		{"counters", "Operations are counted", text(counters)},
		{"requests", "Requests a second", cell{Text: requests.Text}},
		{"created", "Created", since(info.CreatedAt)},
		{"revision", "Configuration", text("revision " + group(info.Revision))},
	}
	usage, err := v.nodeUsage(ctx, path)
	if err != nil {
		return nil, err
	}
	t := newTable("quotas", "Quotas", "", col("Of"), numCol("Used"), numCol("At most"), col("Share"))
	for _, x := range []struct {
		what      string
		used, max uint64
		show      func(uint64) string
	}{
		{"Sessions", usage.Sessions, *c.MaxSessions, group},
		{"Semaphores, processes and rollouts", usage.Semaphores, *c.MaxSemaphores, group},
		{"Bytes of names and data", usage.Bytes, *c.MaxBytes, bytesText},
		{"Waiting acquires", usage.Waiters, *c.MaxWaiters, group},
	} {
		share := &bar{Label: x.show(x.used) + " of " + x.show(x.max) + " used"}
		if size := thousandths(x.used, x.max); size > 0 {
			kind := "held"
			if size >= 900 {
				kind = "over"
			}
			share.Parts = []barPart{{0, size, kind}}
		}
		t.Rows = append(t.Rows, row{Key: x.what, Cells: []cell{
			text(x.what), {Text: x.show(x.used), Kind: "num"}, {Text: x.show(x.max), Kind: "num"},
			{Text: percent(x.used, x.max), Bar: share, Kind: "wide"},
		}})
	}
	p.Tables = []table{t}
	p.Actions = []link{
		{"Services", address("/services", "node", path)}, {"Elections", address("/elections", "node", path)},
		{"Configurations", address("/configurations", "node", path)}, {"Semaphores", address("/semaphores", "node", path)}, {"Sessions", address("/sessions", "node", path)},
		{"Rate limits", address("/limits", "node", path)}, {"Rollouts", address("/rollouts", "node", path)}, {"Processes", address("/processes", "node", path)},
	}
	return p, nil
}

func (v *viewer) nodeUsage(ctx context.Context, path string) (admin.NodeUsage, error) {
	n, err := v.node(ctx, path)
	if err != nil {
		return admin.NodeUsage{}, err
	}
	return admin.OfNode(n).Usage(ctx)
}

func percent(part, whole uint64) string {
	switch f := float64(part) / float64(max(whole, 1)) * 100; {
	case part == 0:
		return "0 %"
	case f < 0.1:
		return "under 0.1 %"
	case f < 10:
		return trimFloat(f, 1) + " %"
	default:
		return trimFloat(f, 0) + " %"
	}
}

func consistencyText(c client.Consistency) string {
	if c == client.Strict {
		return "strict"
	}
	return "relaxed"
}

// nodeOf is the path of the node that a page is about.
func nodeOf(q url.Values) (string, error) {
	path := cmp.Or(q.Get("node"), defaultNode)
	if err := protocol.ValidatePath(path); err != nil {
		return "", &badRequestError{"The address names no node. Choose one from the list of nodes."}
	}
	return path, nil
}

// nodeCrumbs lead from the nodes to a node's pages.
func nodeCrumbs(path string, more ...link) []link {
	return append([]link{{"Nodes", "/nodes"}, {visible(path), address("/node", "node", path)}}, more...)
}
