package shard

import (
	"encoding/binary"
	"fmt"
	"strings"

	"github.com/cockroachdb/datadriven"

	"github.com/signalbox-dev/signalbox/protocol"
)

// read serves the directives that read: describe NAME [owners] [waiters] [limit=n], list [prefix=p]
// [session=NAME] [limit=n], sessions, objects session=NAME [after=1NAME] [limit=n], stream
// [name=n] [prefix] [bytes=n], held, counters. A page's cursor is followed to the end, with a line
// between pages.
func (x *scriptRunner) read(d *datadriven.TestData) string {
	var line []string
	for _, a := range d.CmdArgs {
		w := a.Key
		if len(a.Vals) > 0 {
			w += "=" + a.Vals[0]
		}
		line = append(line, w)
	}
	a := parseScriptArgs(strings.Join(line, " "))
	node := a.num("node", 1)
	var b strings.Builder
	switch d.Cmd {
	case "process":
		return x.describeProcess(a, node)
	case "processes":
		return x.listProcesses(a, node)
	case "describe":
		x.describe(&b, a, node)
	case "history":
		x.history(&b, a, node)
	case "list":
		req := protocol.List{Node: node, Prefix: a.data("prefix"), Limit: uint32(a.num("limit", 0))}
		if who := a.vals["session"]; who != "" {
			req.Session = x.sessions[who].id
		}
		for more := true; more; more = len(req.Cursor) > 0 {
			var r protocol.ListReply
			if err := x.m.Semaphores().List(&req, &r); err != nil {
				return err.Error() + "\n"
			}
			for _, s := range r.Semaphores {
				fmt.Fprintf(&b, "%s limit=%s used=%s ephemeral=%v version=%d data=%d bytes owners=%d waiters=%d",
					shortName(s.Name), limitWord(s.Limit), limitWord(s.Used),
					s.Ephemeral, s.Version, s.DataLen, s.NumOwners, s.NumWaiters)
				if s.OrderID != 0 {
					fmt.Fprintf(&b, " entry #%d count=%s waiting=%v", s.OrderID, limitWord(s.Count), s.Waiting)
				}
				b.WriteString("\n")
			}
			if req.Cursor = r.Cursor; len(r.Cursor) > 0 {
				b.WriteString("-- next page\n")
			}
		}
	case "sessions":
		req := protocol.SessionList{Node: node, Limit: uint32(a.num("limit", 0))}
		for more := true; more; more = len(req.Cursor) > 0 {
			var r protocol.SessionListReply
			if err := x.m.Sessions().List(&req, &r); err != nil {
				return err.Error() + "\n"
			}
			for _, s := range r.Sessions {
				fmt.Fprintf(&b, "%s state=%d epoch=%d timeout=%d remaining=%d desc=%q client=%s",
					x.sessionName(s.Session), s.State, s.Epoch, s.Timeout, s.Remaining,
					s.Description, s.Client)
				if s.Parent != 0 {
					fmt.Fprintf(&b, " parent=%s", x.sessionName(s.Parent))
				}
				b.WriteString("\n")
			}
			if req.Cursor = r.Cursor; len(r.Cursor) > 0 {
				b.WriteString("-- next page\n")
			}
		}
	case "ratelimits":
		return x.listRateLimits(node)
	case "objects":
		req := protocol.SessionObjects{Node: node, Limit: uint32(a.num("limit", 0))}
		if s := x.sessions[a.vals["session"]]; s != nil {
			req.Session = s.id
		}
		if after := a.vals["after"]; after != "" { // such as 1mail: the type and the name
			req.Cursor = append([]byte{after[0] - '0'}, after[1:]...)
		}
		types := map[protocol.ObjectType]string{protocol.ObjectProcess: "process", protocol.ObjectTrack: "track", protocol.ObjectLimit: "limit",
			protocol.ObjectSession: "session"}
		for more := true; more; more = len(req.Cursor) > 0 {
			var r protocol.SessionObjectsReply
			if err := x.m.Sessions().Objects(&req, &r); err != nil {
				return err.Error() + "\n"
			}
			for _, o := range r.Objects {
				if o.Type == protocol.ObjectSession {
					o.Name = []byte(x.sessionName(binary.BigEndian.Uint64(o.Name)))
				}
				fmt.Fprintf(&b, "%s %s label=%q count=%d\n", types[o.Type], o.Name, o.Label, o.Count)
			}
			if req.Cursor = r.Cursor; len(r.Cursor) > 0 {
				b.WriteString("-- next page\n")
			}
		}
	case "stream":
		var cursor []byte
		for more := true; more; more = cursor != nil {
			var r protocol.Snapshot
			var err error
			cursor, err = x.m.Semaphores().StreamSnapshot(node, a.data("name"), a.has("prefix"), cursor,
				int(a.num("bytes", 0)), &r)
			if err != nil {
				return err.Error() + "\n"
			}
			fmt.Fprintf(&b, "page first=%v last=%v\n", r.First, r.Last)
			for _, s := range r.Semaphores {
				fmt.Fprintf(&b, "  %s limit=%s ephemeral=%v version=%d data=%q owners:",
					s.Name, limitWord(s.Limit), s.Ephemeral, s.Version, s.Data)
				for _, o := range s.Owners {
					fmt.Fprintf(&b, " #%d %s", o.OrderID, x.sessionName(o.Session))
				}
				b.WriteString("\n")
			}
		}
	case "remotes":
		x.m.Sessions().Remotes(func(id, epoch uint64) bool {
			fmt.Fprintf(&b, "%s epoch=%d\n", x.sessionName(id), epoch)
			return true
		})
	case "counters":
		x.m.Metrics().Counters(func(r CounterRow) bool {
			who := "all"
			if r.Session != 0 {
				who = x.sessionName(r.Session)
			}
			fmt.Fprintf(&b, "%s %s: acquires=%d waits=%d releases=%d", r.Name, who, r.Acquires, r.Waits, r.Releases)
			if r.Stuck {
				b.WriteString(" stuck")
			}
			b.WriteString("\n")
			return true
		})
		if n := x.m.Metrics().Sizes().Stuck; n > 0 {
			fmt.Fprintf(&b, "%d queues cannot move\n", n)
		}
	case "busiest":
		most, in := int(a.num("most", 10)), func(id uint64) bool { return a.vals["node"] == "" || id == node }
		for _, list := range []struct {
			title string
			rows  []BusySemaphore
		}{{"longest queues", x.m.Load().LongestQueues(most, in)}, {"oldest waits", x.m.Load().OldestWaits(most, in)}} {
			fmt.Fprintf(&b, "%s:\n", list.title)
			for _, l := range list.rows {
				fmt.Fprintf(&b, "  %s of node %d: %s of %s used, %d owners, %d waiters since %d", l.Name, l.Node,
					limitWord(l.Used), limitWord(l.Limit), l.Owners, l.Waiters, l.WaitingSince-1_700_000_000_000)
				if l.Stuck {
					b.WriteString(", stuck")
				}
				b.WriteString("\n")
			}
		}
		b.WriteString("most entries:\n")
		for _, l := range x.m.Load().MostEntries(most, in) {
			fmt.Fprintf(&b, "  %s of node %d: holds %d, waits for %d\n",
				x.sessionName(l.Session), l.Node, l.Held, l.Waiting)
		}
	case "node":
		_, ok := x.m.Nodes().Config(node)
		fmt.Fprintf(&b, "known=%v\n", ok)
	}
	if b.Len() == 0 {
		return "nothing\n"
	}
	return b.String()
}

func (x *scriptRunner) describe(b *strings.Builder, a scriptArgs, node uint64) {
	req := protocol.Describe{Node: node, Name: []byte(a.words[0]), Limit: uint32(a.num("limit", 0)),
		Flags: protocol.WithOwners | protocol.WithWaiters | protocol.WithSlots}
	for more := true; more; more = len(req.Cursor) > 0 {
		var r protocol.DescribeReply
		if err := x.m.Semaphores().Describe(&req, &r); err != nil {
			fmt.Fprintf(b, "%v\n", err)
			return
		}
		fmt.Fprintf(b, "%s limit=%s used=%s ephemeral=%v version=%d data=%q owners=%d waiters=%d\n", r.Name,
			limitWord(r.Limit), limitWord(r.Used), r.Ephemeral,
			r.Version, r.Data, r.NumOwners, r.NumWaiters)
		x.describeOptions(b, r.Details)
		for _, o := range r.Owners {
			fmt.Fprintf(b, "  owner #%d %s count=%s data=%q desc=%q%s\n", o.OrderID, x.sessionName(o.Session),
				limitWord(o.Count), o.Data, o.Description, ownerWord(o.Options))
		}
		for _, w := range r.Waiters {
			fmt.Fprintf(b, "  waiter #%d %s count=%s data=%q desc=%q timeout=%s%s\n", w.OrderID,
				x.sessionName(w.Session), limitWord(w.Count), w.Data, w.Description,
				limitWord(w.Timeout), waiterWord(w.Options))
		}
		if req.Cursor = r.Cursor; len(r.Cursor) > 0 {
			b.WriteString("-- next page\n")
		}
	}
}
