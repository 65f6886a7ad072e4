package console

import (
	"cmp"
	"context"
	"net/url"
	"strings"
	"sync"

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
		col("Path"), numCol("Sessions"), numCol("Semaphores"), numCol("Waiters"), numCol("Bytes"), col("Fullest quota"),
		col("Reads"),
		numCol("Grace period"), col("Created"))
	if after != "" {
		t.First = "/nodes"
	}
	found, more, err := pageOf(admin.Nodes(v.client).List(ctx, "", client.After(after), client.MaxItems(pageSize+1)))
	for i := range found {
		n := &found[i]
		path := cell{Text: visible(n.Path), Kind: "name", Href: address("/node", "node", n.Path)}
		if depth := min(strings.Count(strings.Trim(n.Path, "/"), "/"), 4); depth > 0 {
			path.Kind += " d" + string(rune('0'+depth))
		}
		t.Rows = append(t.Rows, row{Key: n.Path, Cells: []cell{
			path, none(), none(), none(), none(), none(), text(consistencyText(*n.Config.ReadConsistency)),
			duration(*n.Config.GracePeriod), since(n.CreatedAt),
		}})
	}
	if more {
		t.Next = address("/nodes", "after", found[len(found)-1].Path)
	}
	v.addUsage(ctx, &t, found)
	p.Tables = []table{t}
	return p, err
}

// usedNodes is of how many nodes the list shows what they use: it is read from every shard.
const usedNodes = 25

// addUsage fills in what nodes use. One that cannot be read has none.
func (v *viewer) addUsage(ctx context.Context, t *table, found []admin.NodeInfo) {
	if len(found) > usedNodes {
		t.Count = "the first " + group(usedNodes) + " with what they use; the others have it on their pages"
	}
	var reading sync.WaitGroup
	for i := range min(len(found), usedNodes) {
		reading.Go(func() {
			u, err := v.nodeUsage(ctx, found[i].Path)
			if err != nil {
				return
			}
			cells, c := t.Rows[i].Cells, &found[i].Config
			cells[1], cells[2], cells[3] = zeroQuiet(u.Sessions), zeroQuiet(u.Semaphores), waitersCell(u.Waiters)
			cells[4] = cell{Text: bytesText(u.Bytes), Kind: "num"}
			cells[5] = fullestQuota(u, c)
		})
	}
	reading.Wait()
}

// fullestQuota is the quota of which a node uses the largest share.
func fullestQuota(u admin.NodeUsage, c *admin.NodeConfig) cell {
	var part, whole uint64
	what := ""
	for _, x := range []struct {
		what      string
		used, max uint64
	}{
		{"sessions", u.Sessions, *c.MaxSessions}, {"semaphores", u.Semaphores, *c.MaxSemaphores},
		{"waiters", u.Waiters, *c.MaxWaiters}, {"bytes", u.Bytes, *c.MaxBytes},
	} {
		if what == "" || float64(x.used)/float64(max(x.max, 1)) > float64(part)/float64(max(whole, 1)) {
			what, part, whole = x.what, x.used, x.max
		}
	}
	switch share := (cell{Text: percent(part, whole) + " of " + what}); {
	case part == 0:
		return none()
	case float64(part) >= 0.9*float64(whole):
		share.Kind = "warn"
		return share
	default:
		return share
	}
}

// quotaBar shows how much of a quota is used; from nine tenths on it warns.
func quotaBar(used, most uint64, label string) *bar {
	b := &bar{Label: label}
	if size := thousandths(used, most); size > 0 {
		kind := "held"
		if size >= 900 {
			kind = "over"
		}
		b.Parts = []barPart{{From: 0, Size: size, Kind: kind}}
	}
	return b
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
		{"priority", "Highest priority", text(group(uint64(cmp.Or(*c.MaxPriority, protocol.MaxPriority))))},
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
		share := quotaBar(x.used, x.max, x.show(x.used)+" of "+x.show(x.max)+" used")
		t.Rows = append(t.Rows, row{Key: x.what, Cells: []cell{
			text(x.what), {Text: x.show(x.used), Kind: "num"}, {Text: x.show(x.max), Kind: "num"},
			{Text: percent(x.used, x.max), Bar: share, Kind: "wide"},
		}})
	}
	p.Tables = []table{t}
	p.Actions = []link{
		{"Services", address("/services", "node", path)}, {"Elections", address("/elections", "node", path)},
		{"Configurations", address("/configurations", "node", path)}, {"Semaphores", address("/semaphores", "node", path)},
		{"Sessions", address("/sessions", "node", path)},
		{"Rate limits", address("/limits", "node", path)}, {"Rollouts", address("/rollouts", "node", path)},
		{"Processes", address("/processes", "node", path)},
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
