package console

import (
	"context"
	"net/url"
	"strconv"
	"strings"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/admin"
	"github.com/signalbox-dev/signalbox/client/ratelimit"
)

// The page of a rate limit shows so many resources and sessions, and adds up what so many sessions use.
const (
	limitResources = 500
	limitSessions  = 100
	addedSessions  = 1000
)

// limitsPage lists the trees of rate limits of a node.
var limitsPage = (&nodeList[ratelimit.Info]{
	path: "/limits",
	page: page{Section: "Rate limits", Title: "Rate limits in",
		Lead: "Clients lease rates and decide about each call by themselves. All together they stay below the limit."},
	table: newTable("limits", "Rate limits", "No rate limit here.",
		col("Limit"), numCol("Rate per second"), numCol("Resources"), numCol("Sessions")),
	read: ratelimit.List, name: func(x *ratelimit.Info) string { return x.Name },
	row: func(_ context.Context, n *client.Node, x *ratelimit.Info) row {
		return row{Key: encodeName(x.Name), Cells: []cell{
			nameCell(x.Name, objectURL(admin.ObjectLimit, n.Path(), x.Name)), unitsRate(*x.Config.Rate), number(x.Resources),
			zeroQuiet(x.Participants),
		}}
	},
}).show

// limitPage shows a resource of a rate limit with all below it: what is granted of it, what is used
// and what waits, and which sessions have which rate and why.
func limitPage(ctx context.Context, v *viewer, q url.Values) (*page, error) {
	path, n, name, err := objectOf(ctx, v, q)
	if err != nil {
		return nil, err
	}
	s, err := ratelimit.Describe(ctx, n, name, addedSessions)
	if err != nil {
		return nil, err
	}
	p := &page{
		Section: "Rate limits", Node: path, Title: "Rate limit", Name: visible(name),
		Crumbs: nodeCrumbs(path, link{"Rate limits", address("/limits", "node", path)}),
	}
	for i, r := range name {
		if r == '/' {
			p.Crumbs = append(p.Crumbs, link{visible(name[:i]), objectURL(admin.ObjectLimit, path, name[:i])})
		}
	}
	if s.Learning {
		p.note("warn", "The leader of its shard is new: nobody gets more until it knows who uses what. "+
			"That takes a lease of "+s.Lease.String()+" at most.")
	}
	if len(s.Resources) == 0 {
		return nil, &notFoundError{"There is no such rate limit."}
	}
	top := &s.Resources[0]
	p.Figure = &figure{Bar: *grantedBar(top), Text: unitsText(granted(top)) + " of " + unitsText(top.Rate) +
		" per second granted; " +
		unitsText(top.Demand) + " wanted"}
	waiting := text(unitsText(top.Waiting))
	if top.Waiting > 0 {
		waiting.Kind = "warn"
	}
	p.Facts = []fact{
		{"rate", "Rate per second", text(unitsText(top.Rate))},
		{"burst", "Burst", text(unitsText(top.Burst) + " units")},
		{"waiting", "Units waited for", waiting},
		{"sessions", "Sessions of the tree", text(group(s.Participants))},
		{"lease", "Lease", text(s.Lease.String())},
		{"revision", "Configuration", text("revision " + group(top.Revision))},
	}
	p.Tables = []table{resourceRows(path, name, s), limitSessionRows(path, s)}
	return p, nil
}

// granted is what sessions may use of a resource now.
func granted(r *ratelimit.Resource) float64 { return r.Leased + r.Remote }

// resourceRows are the resources as a tree. Their order is that of their paths, so a resource comes
// before those below it.
func resourceRows(node, root string, s *ratelimit.Status) table {
	t := newTable("resources", "Resources", "It has no resources.",
		col("Resource"), numCol("Rate"), col("Granted"), numCol("Used"), numCol("Wanted"), numCol("Waiting"),
		numCol("Uses"),
		numCol("Allowed"), numCol("Denied"), col("Served by"))
	used := usedBelow(s)
	for i := range s.Resources {
		if i == limitResources {
			t.Count = group(limitResources) + " of " + group(uint64(len(s.Resources)))
			break
		}
		x := &s.Resources[i]
		name := nameCell(x.Path, objectURL(admin.ObjectLimit, node, x.Path))
		if depth := min(strings.Count(x.Path[len(root):], "/"), 4); depth > 0 {
			name.Kind += " d" + strconv.Itoa(depth)
		}
		rate := unitsRate(x.Rate)
		var notes []string
		if x.Config.Min > 0 {
			notes = append(notes, "at least "+unitsText(x.Config.Min))
		}
		if x.Config.Weight > 1 {
			notes = append(notes, "weight "+group(uint64(x.Config.Weight)))
		}
		rate.Note = strings.Join(notes, ", ")
		share := cell{Text: unitsText(granted(x)), Bar: grantedBar(x), Kind: "wide"}
		if x.Unconfirmed > 0 {
			share.Note = unitsText(x.Unconfirmed) + " not given back yet"
		}
		uses := none()
		if used != nil {
			uses = unitsRate(used[x.Path])
		}
		waiting, denied := unitsRate(x.Waiting), unitsRate(x.Denied)
		if x.Waiting > 0 {
			waiting.Kind = "num warn"
		}
		if x.Impossible > 0 {
			denied.Note = unitsText(x.Impossible) + " of calls above the burst, which nobody admits"
		}
		users := zeroQuiet(x.Sessions)
		if x.Sessions > 0 {
			users.Note = group(x.Callers) + " with calls"
		}
		served := quiet("leases")
		if x.ServedRemotely {
			served = text("the server")
			served.Note = "few units for many clients"
		}
		if x.Config.Shadow {
			served.Kind, served.Note = "warn", "shadow: denies nothing"
		}
		t.Rows = append(t.Rows, row{Key: x.Path, Cells: []cell{
			name, rate, share, uses, unitsRate(x.Demand), waiting, users, unitsRate(x.Allowed), denied, served,
		}})
	}
	return t
}

// usedBelow is what sessions use lately of each resource and all below it; nil: there are too many
// sessions to add them up.
func usedBelow(s *ratelimit.Status) map[string]float64 {
	if len(s.Sessions) >= addedSessions {
		return nil
	}
	used := map[string]float64{}
	for i := range s.Sessions {
		x := &s.Sessions[i]
		for path := x.Path; path != ""; path = parentOf(path) {
			used[path] += x.Used
		}
	}
	return used
}

// parentOf is the resource above one; empty for a root.
func parentOf(path string) string { return path[:max(0, strings.LastIndexByte(path, '/'))] }

func grantedBar(r *ratelimit.Resource) *bar {
	b := &bar{Label: unitsText(granted(r)) + " of " + unitsText(r.Rate) + " per second granted"}
	if size := thousandths(uint64(granted(r)*1000), uint64(r.Rate*1000)); size > 0 {
		b.Parts = []barPart{{From: 0, Size: size, Kind: "held"}}
	}
	return b
}

// limitWhys say why a session has the rate that it has.
var limitWhys = map[ratelimit.Why]string{
	ratelimit.WhyDemand: "what its calls ask for", ratelimit.WhyWeight: "others share it, by weight",
	ratelimit.WhyCap: "it has all of the limit", ratelimit.WhyBurst: "the burst is too small for its calls",
	ratelimit.WhyElsewhere: "its calls wait for another limit", ratelimit.WhySilent: "not heard of lately",
	ratelimit.WhyLearning: "the leader is new",
}

// limitSessionRows are the sessions that use a rate limit, first those whose calls wait or are
// denied, with what would change it.
func limitSessionRows(node string, s *ratelimit.Status) table {
	t := newTable("sessions", "Used by", "No session uses it.",
		col("Session"), col("Resource"), numCol("Granted"), numCol("Used"), numCol("Wanted"), numCol("Waiting"),
		col("Because"), col("Lacks since"), col("Member for"))
	for i := range s.Sessions {
		if i == limitSessions {
			t.Count = "the first " + group(limitSessions)
			break
		}
		x := &s.Sessions[i]
		why := text(limitWhys[x.Why])
		if why.Text == "" {
			why.Text = string(x.Why)
		}
		if x.At != "" {
			why.Note = x.Reason()
		}
		waiting := unitsRate(x.Waiting)
		if x.Waiting > 0 {
			waiting.Kind = "num warn"
		}
		lacks := none()
		if x.Lacks > 0 {
			lacks = ago(x.Lacks)
			lacks.Kind, lacks.Note = "warn", x.Remedy()
		}
		t.Rows = append(t.Rows, row{Key: strconv.FormatUint(x.Session, 10) + " " + x.Path, Cells: []cell{
			sessionCell(node, x.Session, ""), {Text: x.Path, Kind: "name", Href: objectURL(admin.ObjectLimit, node, x.Path)},
			unitsRate(x.Rate), unitsRate(x.Used),
			unitsRate(x.Demand), waiting, why, lacks, ago(x.Age),
		}})
	}
	return t
}

// unitsRate is a number of units, or of units per second.
func unitsRate(f float64) cell {
	if f == 0 {
		return cell{Text: "0", Kind: "num quiet"}
	}
	return cell{Text: unitsText(f), Kind: "num"}
}

// unitsText has as many digits as count: thousandths matter only of small numbers.
func unitsText(f float64) string {
	switch {
	case f >= 100:
		return group(uint64(f + 0.5))
	case f >= 1:
		return strings.TrimSuffix(trimFloat(f, 1), ".0")
	}
	return strconv.FormatFloat(f, 'g', 3, 64)
}
