package console

import (
	"context"
	"net/url"
	"strconv"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/admin"
)

// sessionsPage lists the sessions of a node.
func sessionsPage(ctx context.Context, v *viewer, q url.Values) (*page, error) {
	path, n, err := v.nodeOf(ctx, q)
	if err != nil {
		return nil, err
	}
	after, _ := strconv.ParseUint(q.Get("after"), 10, 64)
	p := &page{
		Section: "Sessions", Node: path, Title: "Sessions in", Name: visible(path), Crumbs: nodeCrumbs(path),
		Lead: "A session is a client's identity. What it holds is released when it ends.",
	}
	t := newTable("sessions", "Sessions", "No client has a session here.",
		col("Session"), col("State"), col("Client"), numCol("Timeout"), col("Age"))
	if after > 0 {
		t.First = address("/sessions", "node", path)
	}
	found, more, err := pageOf(admin.OfNode(n).Sessions(ctx, client.AfterSession(after), client.MaxItems(pageSize+1)))
	t.Rows = rowsOf(ctx, found, func(s *admin.SessionInfo) row { return sessionRow(path, s) })
	if more {
		t.Next = address("/sessions", "node", path, "after", strconv.FormatUint(found[len(found)-1].ID, 10))
	}
	p.Tables = []table{t}
	return p, err
}

func sessionRow(path string, s *admin.SessionInfo) row {
	return row{Key: strconv.FormatUint(s.ID, 10), Cells: []cell{
		sessionCell(path, s.ID, s.Description), sessionState(s), text(visible(s.Client)),
		duration(s.Timeout), since(s.CreatedAt),
	}}
}

func sessionState(s *admin.SessionInfo) cell {
	if s.Attached {
		return cell{Text: "attached", Kind: "good"}
	}
	return cell{Text: "detached", Kind: "warn", Note: "ends in " + age(s.Remaining) + " unless it comes back"}
}

// sessionPage shows a session with all that it holds, waits for and takes part in, over all shards.
func sessionPage(ctx context.Context, v *viewer, q url.Values) (*page, error) {
	path, n, err := v.nodeOf(ctx, q)
	if err != nil {
		return nil, err
	}
	id, err := strconv.ParseUint(q.Get("id"), 10, 64)
	if err != nil || id == 0 {
		return nil, &badRequestError{"The address names no session. Choose one from the list of sessions."}
	}
	s, err := admin.OfNode(n).DescribeSession(ctx, id)
	if err != nil {
		return nil, err
	}
	p := &page{
		Section: "Sessions", Node: path, Title: "Session", Name: strconv.FormatUint(id, 10),
		Crumbs: nodeCrumbs(path, link{"Sessions", address("/sessions", "node", path)}),
		Facts: []fact{
			{"state", "State", sessionState(s)},
			{"description", "Description", text(visible(s.Description))},
			{"client", "Client", text(visible(s.Client))},
			{"age", "Age", since(s.CreatedAt)},
			{"timeout", "Timeout", text(durationText(s.Timeout))},
			{"epoch", "Connected so far", text(timesText(s.Epoch))},
		},
	}
	p.offer(ctx, v, "Kill session", "kill-session", "node", path, "id", strconv.FormatUint(id, 10))
	held := newTable("held", "Holds", "It holds nothing.",
		col("Semaphore"), numCol("Token"), numCol("Units"), col("Held in all"))
	waits := newTable("waits", "Waits for", "It waits for nothing.",
		col("Semaphore"), numCol("Token"), numCol("Wants"), col("Held in all"), numCol("Waiters"))
	var entries []client.SemaphoreInfo
	for e, err := range n.List(ctx, "", client.OfSession(id), client.MaxItems(maxHoldings+1)) {
		if err != nil {
			return nil, err
		}
		if len(entries) == maxHoldings {
			held.Count = "the first " + group(maxHoldings) + " of what it holds and waits for"
			break
		}
		entries = append(entries, e)
	}
	for i, r := range rowsOf(ctx, entries, func(e *client.SemaphoreInfo) row { return entryRow(path, e) }) {
		if entries[i].Waiting {
			waits.Rows = append(waits.Rows, r)
		} else {
			held.Rows = append(held.Rows, r)
		}
	}
	part := newTable("objects", "Takes part in",
		"It is a member of no process, has no instance in a rollout, and uses no rate limit.",
		col("Object"), col("Kind"), col("As"))
	for o, err := range admin.OfNode(n).SessionObjects(ctx, id) {
		if err != nil {
			return nil, err
		}
		if len(part.Rows) == maxHoldings {
			part.Count = "the first " + group(maxHoldings)
			break
		}
		kind, as := "process", visible(o.Label)
		if o.Kind == admin.ObjectTrack {
			kind = "rollout"
			if o.Instances > 1 {
				as += " and " + group(o.Instances-1) + " more"
			}
		}
		if o.Kind == admin.ObjectLimit {
			kind = "rate limit"
		}
		if o.Kind == admin.ObjectSession {
			part.Rows = append(part.Rows, row{Key: "session " + strconv.FormatUint(o.Session, 10),
				Cells: []cell{sessionCell(path, o.Session, o.Label), text("session"), text("started by its command")}})
			continue
		}
		name := nameCell(o.Name, objectURL(o.Kind, path, o.Name))
		part.Rows = append(part.Rows, row{Key: kind + " " + encodeName(o.Name), Cells: []cell{name, text(kind), text(as)}})
	}
	p.Tables = []table{held, waits, part}
	return p, nil
}

// entryRow is what a session holds of a semaphore, or wants of it.
func entryRow(path string, e *client.SemaphoreInfo) row {
	r := row{Key: encodeName(e.Name), Cells: []cell{
		nameCell(e.Name, semaphoreURL(path, e.Name)), number(e.Token), units(e.Count), heldCell(e.Used, e.Limit),
	}}
	if e.Waiting {
		r.Cells = append(r.Cells, number(e.NumWaiters))
	}
	return r
}

// maxHoldings is how much of one session a page shows.
const maxHoldings = 500

func timesText(n uint64) string {
	if n == 1 {
		return "once"
	}
	return group(n) + " times"
}

// objectURL is the page of a process, a rollout or a rate limit.
func objectURL(kind admin.ObjectKind, node, name string) string {
	path := "/process"
	switch kind {
	case admin.ObjectTrack:
		path = "/rollout"
	case admin.ObjectLimit:
		path = "/limit"
	}
	return address(path, "node", node, "name", encodeName(name))
}
