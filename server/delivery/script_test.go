package delivery

import (
	"flag"
	"fmt"
	"sort"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard"
)

func init() { flag.Var(flag.Lookup("rewrite").Value, "update", "rewrite the scripts") }

// TestScripts runs the scripts in testdata. Regenerate with go test -update and read the diff.
//
//	hub [window=10ms] [streams=N] [watchers=N] [oneshots=N] [pending=N] [cached=BYTES] [histories=BYTES]
//	                                   a new model; index 0, node 1 exists and is empty
//	open conn=C id=W (name=N | prefix=N) [node=1] [shard=S] [known=INDEX] [epoch=1]
//	close conn=C id=W
//	page conn=C [room=N]               one page of at most N semaphores and owners, default 100
//	oneshot conn=C [session=S] name=N id=W [data] [owners] [node=1]
//	change [node=1]                    one applied batch, a change per line:
//	    create N LIMIT [DATA] | delete N | data N VERSION DATA | limit N LIMIT |
//	    own N ORDER [DATA] | chown N ORDER DATA | disown N ORDER | own N FIRST..LAST
//	at T                               moves the clock to T and flushes what is due
//	soft conn=C frames=N               no droppable frame is taken while N wait; 0: no bound
//	drain conn=C                       the client reads everything
//	conn_closed conn=C | session_ended session=S | session_unbound conn=C session=S [quiet] |
//	node_dropped node=N | invalidate | snapshot_installed | cut
//	stats
//
// Output is what was handed to connections, sorted by connection.
func TestScripts(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		var w *model
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			if d.Cmd == "hub" {
				w = newScriptModel(t, d)
				return "ok"
			}
			w.lines = nil
			extra := w.step(t, d)
			for id, c := range w.conns {
				if d.Cmd != "drain" && c.soft == 0 {
					for len(c.queue) > 0 {
						w.conn(id).read(t)
					}
				}
			}
			sort.SliceStable(w.lines, func(i, j int) bool { return connOf(w.lines[i]) < connOf(w.lines[j]) })
			switch d.Cmd {
			case "node_dropped", "invalidate", "snapshot_installed", "cut", "frozen": // in no order
				sort.Strings(w.lines)
			}
			out := strings.Join(append(w.lines, extra...), "\n")
			if out == "" {
				return "nothing"
			}
			return out
		})
	})
}

func connOf(line string) int {
	var n int
	_, _ = fmt.Sscanf(line, "conn %d", &n)
	return n
}

func newScriptModel(t *testing.T, d *datadriven.TestData) *model {
	var opt WatchOptions
	if d.HasArg("window") {
		opt.Window = duration(t, d, "window")
	}
	opt.Limits = WatchLimits{Streams: int(number(t, d, "streams", 0)), Watchers: int(number(t, d, "watchers", 0)),
		OneShots: int(number(t, d, "oneshots", 0)), Pending: int(number(t, d, "pending", 0)),
		CachedPage: int(number(t, d, "cached", 0))}
	if d.HasArg("histories") {
		opt.Histories = NewHistoryBudget(int64(number(t, d, "histories", 0)))
	}
	w := newModel(opt)
	w.store[1] = make(map[string]semaphore)
	return w
}

func (w *model) step(t *testing.T, d *datadriven.TestData) []string {
	conn, id, node := number(t, d, "conn", 0), number(t, d, "id", 0), number(t, d, "node", 1)
	if conn != 0 {
		w.conn(conn)
	}
	switch d.Cmd {
	case "open":
		m := protocol.Watch{Shard: number(t, d, "shard", testShard), Node: node,
			Known: number(t, d, "known", 0), Epoch: number(t, d, "epoch", 1)}
		if d.HasArg("prefix") {
			m.Name, m.Prefix = []byte(text(t, d, "prefix")), true
		} else {
			m.Name = []byte(text(t, d, "name"))
		}
		if err := w.hub.Open(conn, id, &m, number(t, d, "most", noQuota)); err != nil {
			return []string{err.Error()}
		}
		w.conns[conn].views[id] = &streamView{node: node, key: string(m.Name), prefix: m.Prefix}
	case "close":
		delete(w.conns[conn].views, id)
		return []string{fmt.Sprintf("closed: %v", w.hub.Close(conn, id))}
	case "page":
		room := int(number(t, d, "room", 100))
		if sent, more := w.hub.CachedPage(conn, room); sent {
			return []string{fmt.Sprintf("not read again; more: %v", more)}
		}
		return []string{fmt.Sprintf("more: %v", w.hub.Page(conn, w, room))}
	case "oneshot":
		var flags uint8
		if d.HasArg("data") {
			flags |= protocol.WatchData
		}
		if d.HasArg("owners") {
			flags |= protocol.WatchOwners
		}
		if err := w.hub.OneShot(conn, number(t, d, "session", 0), node, []byte(text(t, d, "name")), flags, id,
			number(t, d, "most", noQuota)); err != nil {
			return []string{err.Error()}
		}
	case "change":
		var batch []shard.SemaphoreChange
		for _, line := range strings.Split(d.Input, "\n") {
			if f := strings.Fields(line); f[0] == "own" && strings.Contains(f[2], "..") {
				var first, last int
				_, _ = fmt.Sscanf(f[2], "%d..%d", &first, &last)
				for ; first <= last; first++ {
					batch = append(batch, parseChange(t, node, fmt.Sprintf("own %s %d", f[1], first)))
				}
				continue
			}
			batch = append(batch, parseChange(t, node, line))
		}
		w.change(batch...)
	case "at":
		now, err := time.ParseDuration(d.CmdArgs[0].Key)
		if err != nil {
			t.Fatal(err)
		}
		w.advance(now)
	case "soft":
		w.conns[conn].soft = int(number(t, d, "frames", 0))
	case "drain":
		c := w.conns[conn]
		n := len(c.queue)
		for len(c.queue) > 0 {
			c.read(t)
		}
		return []string{fmt.Sprintf("%d frames read", n)}
	case "view":
		v := w.conns[conn].views[id]
		var out []string
		for name, s := range v.sems {
			out = append(out, fmt.Sprintf("%s %s", name, s))
		}
		sort.Strings(out)
		return append(out, fmt.Sprintf("live: %v", v.live))
	case "conn_closed":
		w.hub.connClosed(conn)
	case "session_ended":
		w.hub.SessionEnded(number(t, d, "session", 0))
	case "session_unbound":
		w.hub.SessionUnbound(conn, number(t, d, "session", 0), !d.HasArg("quiet"))
	case "node_dropped":
		delete(w.store, node)
		w.hub.nodeDropped(node)
	case "invalidate":
		w.hub.InvalidateOneShots()
	case "snapshot_installed":
		w.index += 100
		w.hub.snapshotInstalled()
	case "cut":
		w.hub.cutNodes(func(n uint64) bool { return n == node || !d.HasArg("node") },
			protocol.StatusUnavailable, "the shard left this instance; fetch the map")
	case "frozen":
		prefix := text(t, d, "names")
		w.hub.namesFrozen(func(n uint64, name []byte) bool { return n == node && strings.HasPrefix(string(name), prefix) })
	case "active":
		w.hub.bucketsActive()
	case "watchers":
		return []string{fmt.Sprintf("%d open, %d rejected", w.hub.opt.Quota.Open(node), w.over[node])}
	case "stats":
		return []string{fmt.Sprintf("%+v", w.hub.Stats())}
	default:
		t.Fatalf("unknown command %s", d.Cmd)
	}
	return nil
}

func parseChange(t *testing.T, node uint64, line string) shard.SemaphoreChange {
	f := append(strings.Fields(line), "", "", "")
	c := shard.SemaphoreChange{Node: node, Name: []byte(f[1])}
	n, _ := strconv.ParseUint(f[2], 10, 64)
	switch f[0] {
	case "create":
		c.Kind, c.Limit, c.Version, c.Data = protocol.ChangeCreated, n, 1, []byte(f[3])
	case "delete":
		c.Kind = protocol.ChangeDeleted
	case "data":
		c.Kind, c.Version, c.Data = protocol.ChangeData, n, []byte(f[3])
	case "limit":
		c.Kind, c.Limit = protocol.ChangeLimit, n
	case "own", "chown":
		c.Kind = protocol.ChangeOwnerAdded
		if f[0] == "chown" {
			c.Kind = protocol.ChangeOwnerChanged
		}
		c.Owner = protocol.Owner{OrderID: n, Data: []byte(f[3])}
		if size, ok := strings.CutPrefix(f[3], "bytes="); ok {
			count, _ := strconv.Atoi(size)
			c.Owner.Data = []byte(strings.Repeat("x", count))
		}
	case "disown":
		c.Kind, c.Owner = protocol.ChangeOwnerRemoved, protocol.Owner{OrderID: n}
	default:
		t.Fatalf("unknown change %q", line)
	}
	return c
}

func number(t *testing.T, d *datadriven.TestData, key string, def uint64) uint64 {
	if !d.HasArg(key) {
		return def
	}
	var n uint64
	d.ScanArgs(t, key, &n)
	return n
}

func text(t *testing.T, d *datadriven.TestData, key string) string {
	var s string
	for _, a := range d.CmdArgs {
		if a.Key == key && len(a.Vals) == 1 {
			s = a.Vals[0]
		}
	}
	return s
}

func duration(t *testing.T, d *datadriven.TestData, key string) time.Duration {
	v, err := time.ParseDuration(text(t, d, key))
	if err != nil {
		t.Fatal(err)
	}
	return v
}
