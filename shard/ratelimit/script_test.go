package ratelimit

import (
	goflag "flag"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/signalbox-dev/signalbox/protocol"
)

func init() { goflag.Var(goflag.Lookup("rewrite").Value, "update", "rewrite the scripts") }

// TestScripts runs testdata/scripts: each file tells rules as a story. Regenerate with -update and
// read the diff.
//
// The only directive is do; each input line is a command, echoed with its answer. Rates and amounts
// are in units.
//
//	at 5000 | at +50
//	    log time, in ms
//	create PATH [rate=n] [burst=ms] [weight=n] [min=n] [lease=ms] [floor=n] [shadow]
//	alter PATH [revision=n] ... | delete PATH [revision=n]
//	join NAME [epoch [again]] | leave NAME
//	    an epoch without again: by another process
//	refresh NAME LEAF [demand=n] [waiting=n] [need=n] [denied=n] [allowed=n] [closed], LEAF ... [lost] [empty] [forged] [old] [late] [open=n]
//	    lost: the answer does not come; empty: the client presents no lease; forged: what it presents
//	    is not signed; old: it is the refresh before; late: the last acquire was sent after it;
//	    open=n: NAME wants nothing of the acquires before the n-th
//	acquire NAME LEAF[+LEAF ...] n ... [try] [late]
//	    units of calls, of all leaves together; late: it was sent before the last refresh
//	back NAME [n]
//	    gives back what the n-th acquire from the last granted
//	leader | move
//	    a new leadership, which knows nothing; the same after a move of the bucket
//	drain
//	    somebody has used all that the leader's own buckets had
//	from-backup
//	    the tree is one of a backup, in a cluster that is restored from it
//	tick, state, restore
//
// The lines of a refresh end with why the client has what it has.
func TestScripts(t *testing.T) {
	datadriven.Walk(t, "testdata/scripts", func(t *testing.T, path string) {
		x := &scriptRunner{now: 1000, clients: map[string]*scriptClient{}, at: Leadership{1, 1}}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			for line := range strings.Lines(d.Input) {
				if line = strings.TrimSpace(line); line != "" {
					x.command(t, line)
				}
			}
			s := x.b.String()
			x.b.Reset()
			return s
		})
	})
}

type scriptClient struct {
	name           string
	session, epoch uint64
	seq            uint64   // of the latest message
	asked          []uint64 // the numbers of its acquires
	refreshed      uint64   // the number of its latest refresh
	leadership     Leadership
	held           map[string]Lease
}

type scriptRunner struct {
	now     uint64
	tree    *Tree
	version uint64
	leases  *Leases
	at      Leadership
	clients map[string]*scriptClient
	names   []string
	b       strings.Builder
}

func (x *scriptRunner) say(format string, args ...any) { fmt.Fprintf(&x.b, format+"\n", args...) }

func units(v uint64) string { return strconv.FormatFloat(float64(v)/1000, 'f', -1, 64) }

func amount(s string) uint64 {
	f, err := strconv.ParseFloat(s, 64)
	if err != nil {
		panic(err)
	}
	return uint64(f * 1000)
}

func scriptOptions(words []string) (plain []string, options map[string]string) {
	options = map[string]string{}
	for _, w := range words {
		if k, v, ok := strings.Cut(w, "="); ok {
			options[k] = v
		} else {
			plain = append(plain, w)
		}
	}
	return plain, options
}

func scriptConfig(words []string) (c protocol.LimitConfig, revision uint64) {
	plain, o := scriptOptions(words)
	number := func(k string) uint64 { n, _ := strconv.ParseUint(o[k], 10, 64); return n }
	for _, k := range []string{"rate", "min", "floor"} {
		if o[k] != "" {
			*map[string]*uint64{"rate": &c.Rate, "min": &c.Min, "floor": &c.Floor}[k] = amount(o[k])
		}
	}
	c.Burst, c.Weight, c.Lease = number("burst"), uint32(number("weight")), number("lease")
	c.Unlimited = o["rate"] == ""
	c.Shadow = len(plain) > 0 && plain[0] == "shadow"
	return c, number("revision")
}

func (x *scriptRunner) client(name string) *scriptClient {
	c := x.clients[name]
	if c == nil {
		x.names = append(x.names, name)
		c = &scriptClient{name: name, session: uint64(len(x.names)), epoch: 1, held: map[string]Lease{}}
		x.clients[name] = c
	}
	return c
}

func (x *scriptRunner) answered(revision uint64, err error) {
	x.version++
	if err != nil {
		x.say("  %v", err)
	} else if revision > 0 {
		x.say("  revision %d", revision)
	}
}

func (x *scriptRunner) command(t *testing.T, line string) {
	x.say("%s", line)
	w := strings.Fields(line)
	switch w[0] {
	case "at":
		n, _ := strconv.ParseUint(strings.TrimPrefix(w[1], "+"), 10, 64)
		if x.now += n; w[1][0] != '+' {
			x.now = n
		}
	case "create":
		c, _ := scriptConfig(w[2:])
		if x.tree == nil {
			tree, err := New(x.now, 0, w[1], c)
			if x.answered(1, err); err == nil {
				x.tree, x.leases = tree, NewLeases(x.at, x.now-1)
			}
			return
		}
		x.answered(x.tree.Create(x.now, 0, w[1], c))
	case "alter":
		c, revision := scriptConfig(w[2:])
		x.answered(x.tree.Alter(x.now, w[1], revision, c))
	case "delete":
		_, revision := scriptConfig(w[2:])
		x.answered(0, x.tree.Delete(x.now, w[1], revision))
	case "join":
		c := x.client(w[1])
		if len(w) > 2 { // another process
			c.epoch, _ = strconv.ParseUint(w[2], 10, 64)
			if len(w) == 3 {
				c.leadership, c.held = Leadership{}, map[string]Lease{}
			}
		}
		x.answered(0, x.tree.Join(x.now, c.session, c.epoch, len(w) > 3))
	case "leave":
		x.tree.Leave(x.now, x.client(w[1]).session)
		x.version++
	case "refresh":
		x.refresh(w[1], strings.Join(w[2:], " "))
	case "acquire":
		c := x.client(w[1])
		for _, word := range w[3:] {
			if word == "try" || word == "late" {
				continue
			}
			c.seq += 2
			c.asked = append(c.asked, c.seq)
			q := Acquire{Session: c.session, Epoch: c.epoch, Leaves: strings.Split(w[2], "+"), Amount: amount(word), Seq: c.seq,
				Wait: w[len(w)-1] != "try", From: Origin{c.session, uint64(len(c.asked))}}
			if w[len(w)-1] == "late" {
				q.Seq = c.refreshed - 1
			}
			if err := x.leases.Acquire(x.now, x.tree, x.version, &q); err != nil {
				x.say("  %v", err)
			}
		}
		x.admit()
	case "admit":
		x.admit()
	case "back", "used":
		c := x.client(w[1])
		q := Acquire{Session: c.session, Epoch: c.epoch}
		if n := len(c.asked) - 1; len(w) > 2 {
			before, _ := strconv.Atoi(w[2])
			q.Back = c.asked[n-before]
		} else {
			q.Back = c.asked[n]
		}
		if w[0] == "used" {
			q.Used, q.Back = q.Back, 0
		}
		if err := x.leases.Acquire(x.now, x.tree, x.version, &q); err != nil {
			x.say("  %v", err)
		}
		x.admit()
	case "leader", "move":
		if x.at.Epoch++; w[0] == "move" {
			x.at = Leadership{x.at.Bucket + 1, 1}
		}
		x.leases = NewLeases(x.at, x.now)
	case "tick":
		x.leases.Tick(x.now, x.tree, x.version, func(s uint64) { x.say("  notify %s", x.names[s-1]) })
		if at, ok := x.leases.Next(); ok {
			x.say("  next at %d", at)
		}
	case "state":
		for i := range x.leases.nodes {
			n := &x.leases.nodes[i]
			x.say("  %s rate=%s counted=%s demand=%s target=%s burst=%s counted=%s given=%s remote=%s level=%s", n.path, units(n.rate), units(n.countedRate),
				units(n.demand), units(n.target), units(n.burst), units(n.countedBurst), units(n.unused), units(n.remoteTarget), units(n.bucket.level/1000))
		}
	case "drain":
		for i := range x.leases.nodes {
			x.leases.nodes[i].bucket = bucket{at: x.now}
		}
	case "from-backup":
		x.tree.SkipRevisions(func(r uint64) uint64 { return r + 10 })
		x.version++
	case "restore":
		tree, err := Decode(x.tree.Append(nil))
		if err != nil {
			t.Fatal(err)
		}
		x.tree = tree
	default:
		t.Fatalf("unknown command %q", line)
	}
	if x.leases != nil {
		if err := x.leases.Check(); err != nil {
			t.Fatal(err)
		}
		for _, path := range aboveLimit(x.leases) {
			x.say("  %s is counted above its limit", path)
		}
	}
}

// admit shows who is answered.
func (x *scriptRunner) admit() {
	x.leases.Admit(x.now, x.tree, x.version, func(a *Answer) bool {
		switch {
		case a.To.Request == 0:
		case a.Err != nil:
			x.say("  %s %d: %v", x.names[a.To.Conn-1], a.To.Request, a.Err)
		case a.Granted:
			x.say("  %s %d is granted", x.names[a.To.Conn-1], a.To.Request)
		default:
			x.say("  %s %d is not granted, perhaps in %d ms", x.names[a.To.Conn-1], a.To.Request, a.Retry)
		}
		return true
	})
	if at, ok := x.leases.AdmitAt(); ok {
		x.say("  next at %d", at)
	}
}

func (x *scriptRunner) refresh(name, text string) {
	c := x.client(name)
	lost, empty, forged := false, false, false
	former := c.refreshed
	c.seq += 2
	q := Refresh{Session: c.session, Epoch: c.epoch, Seq: c.seq, Leadership: c.leadership}
	for leaf := range strings.SplitSeq(text, ",") {
		plain, o := scriptOptions(strings.Fields(leaf))
		f := LeafRefresh{Leaf: plain[0]}
		for _, w := range plain[1:] {
			switch w {
			case "lost":
				lost = true
			case "empty":
				empty = true
				delete(c.held, f.Leaf)
			case "forged":
				forged = true
			case "old":
				q.Seq = former
			case "late":
				q.Seq = c.asked[len(c.asked)-1] - 1
			case "closed":
				f.Closed = true
			}
		}
		if n, _ := strconv.Atoi(o["open"]); n > len(c.asked) {
			q.Open = q.Seq
		} else if n > 0 {
			q.Open = c.asked[n-1]
		}
		for k, v := range map[string]*uint64{"demand": &f.Demand, "waiting": &f.Waiting, "need": &f.Need, "allowed": &f.Allowed,
			"denied": &f.Denied} {
			if o[k] != "" {
				*v = amount(o[k])
			}
		}
		if g, ok := c.held[f.Leaf]; ok && !empty {
			if f.Presented = true; !forged {
				f.Held = g
			}
		}
		q.Leaves = append(q.Leaves, f)
	}
	c.refreshed = q.Seq
	var r Reply
	if err := x.leases.Refresh(x.now, x.tree, x.version, &q, &r); err != nil {
		x.say("  %v", err)
		return
	}
	learning := ""
	if r.Again {
		learning = ", refresh again"
	}
	for i, a := range r.Leaves {
		state := [...]string{"", "remote ", "missing ", "inner "}[a.State]
		why := [...]string{0: "demand", 1: "weight", 3: "learning", 5: "none", 9: "cap", 10: "burst", 11: "elsewhere", 12: "silent"}[a.Why]
		if a.At != "" {
			why += " of " + a.At
		}
		extra := learning
		if a.Level > 0 {
			extra += ", with " + units(a.Level)
		}
		if a.Lease.Number.Count == 0 {
			x.say("  %sno lease: %s%s", state, why, extra)
		} else {
			x.say("  %s%d.%d.%d: %s/s burst %s for %d ms: %s%s", state, a.Lease.Number.Bucket, a.Lease.Number.Epoch, a.Lease.Number.Count,
				units(a.Lease.Rate), units(a.Lease.Burst), a.Length, why, extra)
		}
		if lost {
			continue
		}
		if leaf := q.Leaves[i].Leaf; a.Lease.Number.Count > 0 {
			c.held[leaf] = a.Lease
		} else {
			delete(c.held, leaf)
		}
		c.leadership = r.Leadership
	}
}
