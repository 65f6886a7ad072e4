package console

import (
	"context"
	"net/url"
	"slices"
	"strconv"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/discovery"
)

// service makes the page of a semaphore that of the service that it is: its members by state and
// zone, who is left out, and whom a caller in a zone uses.
func (s *semaphoreView) service(ctx context.Context, v *viewer, n *client.Node, q url.Values, p *page) error {
	owners := s.owners
	if s.ownersAfter > 0 || uint64(len(owners)) < s.sem.NumOwners {
		all, err := n.Describe(ctx, s.name, client.IncludeOwners(), client.MaxItems(maxHoldings))
		if err != nil {
			return err
		}
		owners = all.Owners
	}
	members, zone := membersOf(owners), q.Get("zone")
	view, err := discovery.ViewOf(members, discovery.InZone(zone), discovery.Subset(0))
	if err != nil {
		return &badRequestError{sentence(err.Error())}
	}
	p.Section, p.Title, p.Figure = "Services", "Service", nil
	p.Crumbs = nodeCrumbs(s.path, link{"Services", address("/services", "node", s.path)})
	states := countStates(view.All)
	caller := "a caller without a zone"
	if zone != "" {
		caller = "a caller in " + visible(zone)
	}
	p.Facts = []fact{
		{"members", "Members", text(group(s.sem.NumOwners))},
		{"ready", "Ready", text(group(uint64(states[discovery.Ready])))},
		{"failing", "Failing", text(group(uint64(states[discovery.Failing])))},
		{"draining", "Draining", text(group(uint64(states[discovery.Draining])))},
		{"out", "Left out", text(group(uint64(len(members) - len(view.All))))},
		{"used", "Used by " + caller, text(group(uint64(len(view.Used))))},
	}
	switch {
	case len(view.All) == 0:
		p.note("bad", "Callers find nobody: no member has data that is an address.")
	case view.Panic:
		p.note("warn", "Too few members are ready, so callers use failing ones too.")
	case states[discovery.Ready] == 0:
		p.note("warn", "Only draining members are left, so callers use them.")
	}
	if uint64(len(owners)) < s.sem.NumOwners {
		p.note("warn", "This page is about the first "+group(uint64(len(owners)))+" members. Callers choose among all.")
	}
	p.Tables = []table{s.zoneRows(view, zone), s.memberRows(members, view, v.may(ctx, "use", s.path))}
	return nil
}

// zoneRows are the zones of a service, each with whom a caller there uses.
func (s *semaphoreView) zoneRows(view *discovery.View, chosen string) table {
	t := newTable("zones", "Zones", "No member is in a zone.",
		col("Zone"), col("Ready"), col("Not ready"), numCol("Share of weight"), col("A caller there uses"))
	weight := 0
	for _, e := range view.All {
		weight += e.Weight
	}
	for _, zone := range zonesOf(view.All) {
		var here []*discovery.Endpoint
		sum := 0
		for _, e := range view.All {
			if e.Zone == zone {
				here = append(here, e)
				sum += e.Weight
			}
		}
		states := countStates(here)
		seen := view.In(zone)
		uses := text(plural(uint64(len(seen.Used)), "member"))
		uses.Note = "of this zone alone"
		if slices.ContainsFunc(seen.Used, func(e *discovery.Endpoint) bool { return e.Zone != zone }) {
			uses.Note = "of all zones"
		}
		r := row{Key: "zone " + zone, Cells: []cell{
			{Text: zoneText(zone), Kind: "name", Href: s.at("zone", zone)},
			{Text: states.share(len(here)), Bar: stateBar(states, here), Kind: "wide"}, states.troubles(0),
			{Text: percent(uint64(sum), uint64(weight)), Kind: "num"}, uses,
		}}
		if zone == chosen {
			r.Tone = "high"
		}
		t.Rows = append(t.Rows, r)
	}
	return t
}

// memberState is the column of a member's state.
const memberState = 1

// memberRows are the members: those that need a look first, then by zone and address.
func (s *semaphoreView) memberRows(members []client.Member, view *discovery.View, mayDrain bool) table {
	t := newTable("members", "Members", "No member is registered.",
		col("Address"), col("State"), col("Zone"), numCol("Weight"), col("Used"), col("Member for"), col("Session"))
	if mayDrain {
		t.Columns = append(t.Columns, col(actionColumn))
	}
	for i := range members {
		m := &members[i]
		r := row{Key: strconv.FormatUint(m.Session, 10)}
		address, state, zone, weight, used := cell{Kind: "name"}, cell{}, none(), none(), quiet("no")
		verb, word := "drain-member", "Drain"
		e, why := view.Find(m)
		if e == nil {
			address.Text = visibleData(string(cut(m.Data, maxRowData)))
		} else {
			address.Text = visible(e.Addr)
		}
		if why != "" {
			state = cell{Text: "left out", Kind: "bad", Note: sentence(visibleText(why))}
			verb = "" // callers do not see it
		} else {
			state = endpointState(e)
			weight = cell{Text: strconv.Itoa(e.Weight), Kind: "num"}
			if e.Zone != "" {
				zone = text(visible(e.Zone))
			}
			isUsed, because := view.Reason(e)
			if isUsed {
				used = text("yes")
			}
			used.Note = because
			if e.State == discovery.Draining {
				verb, word = "undrain-member", "Undrain"
			}
		}
		r.Cells = []cell{address, state, zone, weight, used, since(m.Since), sessionCell(s.path, m.Session, m.Description)}
		if mayDrain {
			action := none()
			if verb != "" {
				action = cell{Text: word, Href: actionURL(verb, "node", s.path, "name", encodeName(s.name), "session", r.Key)}
			}
			r.Cells = append(r.Cells, action)
		}
		t.Rows = append(t.Rows, r)
	}
	grave := map[string]int{"bad": 0, "warn": 1, "good": 2}
	slices.SortStableFunc(t.Rows, func(a, b row) int {
		return grave[a.Cells[memberState].Kind] - grave[b.Cells[memberState].Kind]
	})
	return t
}

func endpointState(e *discovery.Endpoint) cell {
	c := cell{Text: string(e.State), Kind: "good", Note: visibleText(e.Why)}
	switch e.State {
	case discovery.Failing:
		c.Kind = "bad"
	case discovery.Draining:
		c.Kind = "warn"
	}
	return c
}

// aboutMemberOf is about a member of a service.
func aboutMemberOf(ctx context.Context, v *viewer, q url.Values) (*target, error) {
	t, err := about(ctx, v, q, semaphorePage, "/semaphore", "name", "session")
	if err != nil {
		return nil, err
	}
	t.id = number64(q.Get("session"))
	if !t.only("members", "Member that is meant", func(key string) bool { return key == strconv.FormatUint(t.id, 10) }) {
		return nil, &notFoundError{"This session is no member of the service now."}
	}
	t.saw("the member's state", t.page.Tables[0].Rows[0].Cells[memberState].Text)
	return t, nil
}

// requestDrain asks a member of a service to drain.
func requestDrain(ctx context.Context, v *viewer, t *target, why string) error {
	return v.withSession(ctx, t.path, func(s *client.Session) error {
		return discovery.RequestDrain(ctx, s, nameOf(t.q), t.id, why)
	})
}

func cancelDrain(ctx context.Context, v *viewer, t *target) error {
	return v.withSession(ctx, t.path, func(s *client.Session) error {
		return discovery.CancelDrain(ctx, s, nameOf(t.q), t.id)
	})
}
