package console

import (
	"context"
	"net/url"
	"slices"
	"strings"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/discovery"
)

// listedMembers is how many members of a service the list of services looks at.
const listedMembers = 200

// servicesPage lists the services of a node: what sessions hold single units of, with addresses.
func servicesPage(ctx context.Context, v *viewer, q url.Values) (*page, error) {
	p := &page{
		Section: "Services", Title: "Services in",
		Lead: "The members of a service say where they are and how they are, and callers choose among them.",
	}
	list := &scan{
		path: "/services", read: []client.ReadOption{client.IncludeOwners(), client.MaxItems(listedMembers)},
		table: newTable("services", "Services", "No service has members here.",
			col("Service"), numCol("Members"), col("Ready"), col("Zones"), col("Not ready")),
		want: func(s *client.SemaphoreInfo) bool { return kindOfInfo(s) == kindShared },
		row:  serviceRow,
	}
	return list.page(ctx, v, q, p)
}

func serviceRow(node string, s *client.Semaphore) (row, bool) {
	if !isService(s.Limit, s.Used, s.Owners) {
		return row{}, false
	}
	view, err := discovery.ViewOf(membersOf(s.Owners))
	if err != nil {
		return row{}, false
	}
	states := countStates(view.All)
	ready := cell{Bar: stateBar(states, view.All), Text: states.share(len(view.All)), Kind: "wide"}
	if seen := uint64(len(s.Owners)); seen < s.NumOwners {
		ready.Note = "of the first " + group(seen)
	}
	not := states.troubles(len(s.Owners) - len(view.All))
	var zones []string
	for _, z := range zonesOf(view.All) {
		zones = append(zones, zoneText(z))
	}
	return row{Key: encodeName(s.Name), Cells: []cell{
		nameCell(s.Name, semaphoreURL(node, s.Name)), number(s.NumOwners), ready, text(strings.Join(zones, ", ")), not,
	}}, true
}

// membersOf are owners as members of a service.
func membersOf(owners []client.Owner) (list []client.Member) {
	for i := range owners {
		o := &owners[i]
		if o.Count != client.Max {
			list = append(list, client.Member{Session: o.Session, Token: o.Token, Data: o.Data, Description: o.Description,
				Since: o.Since})
		}
	}
	return list
}

// memberStates are how many endpoints have each state.
type memberStates map[discovery.State]int

func countStates(all []*discovery.Endpoint) memberStates {
	n := memberStates{}
	for _, e := range all {
		n[e.State]++
	}
	return n
}

// share is in words how many endpoints are ready.
func (n memberStates) share(all int) string {
	return group(uint64(n[discovery.Ready])) + " of " + group(uint64(all))
}

// troubles are those that are not ready, the gravest first.
func (n memberStates) troubles(leftOut int) cell {
	var words []string
	for _, x := range []struct {
		n    int
		what string
	}{{n[discovery.Failing], "failing"}, {n[discovery.Draining], "draining"}, {leftOut, "left out"}} {
		if x.n > 0 {
			words = append(words, group(uint64(x.n))+" "+x.what)
		}
	}
	switch {
	case len(words) == 0:
		return none()
	case n[discovery.Failing] > 0 && n[discovery.Ready] == 0:
		return cell{Text: strings.Join(words, ", "), Kind: "bad"}
	}
	return cell{Text: strings.Join(words, ", "), Kind: "warn"}
}

// stateBar has a part for the ready endpoints, and one for the failing ones.
func stateBar(n memberStates, all []*discovery.Endpoint) *bar {
	b := &bar{Label: n.share(len(all)) + " ready"}
	ready := thousandths(uint64(n[discovery.Ready]), uint64(len(all)))
	if ready > 0 {
		b.Parts = append(b.Parts, barPart{From: 0, Size: ready, Kind: "held"})
	}
	if failing := thousandths(uint64(n[discovery.Failing]), uint64(len(all))); failing > 0 {
		b.Parts = append(b.Parts, barPart{From: ready, Size: min(failing, 1000-ready), Kind: "full"})
	}
	return b
}

// zonesOf are the zones of endpoints, in order.
func zonesOf(all []*discovery.Endpoint) (zones []string) {
	for _, e := range all {
		if !slices.Contains(zones, e.Zone) {
			zones = append(zones, e.Zone)
		}
	}
	slices.Sort(zones)
	return zones
}

func zoneText(zone string) string {
	if zone == "" {
		return "no zone"
	}
	return visible(zone)
}
