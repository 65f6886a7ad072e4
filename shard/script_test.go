package shard

import (
	"bytes"
	"cmp"
	"flag"
	"fmt"
	"math"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/signalbox-dev/signalbox/protocol"
)

func init() { flag.Var(flag.Lookup("rewrite").Value, "update", "rewrite the scripts") }

// TestScripts runs testdata/scripts: each file shows rules of the specification.
// Regenerate with -update and read the diff.
//
// A directive is one of these; the output is what left the machine, in order, then the changes that
// watches see.
//
//	batch [t=ms] [epoch=term[.number]]
//	    one Apply; each input line is a command, see scriptRunner.command
//	tick [t=ms]
//	    one Apply without commands
//	remote NAME
//	    names a session at home in another shard (the last of 256 buckets is not active here)
//	alias NAME of=NAME
//	    another connection of the same session, with its own attach epoch
//	describe/list/sessions/objects/stream/remotes/process/processes/busiest
//	    reads
//	restore
//	    snapshot, restore, compare digests, continue with the restored machine
//	limits waiters=n semaphores=n answers=n deadlines=n sweeps=n releases=n
//	    bounds, and the work of one Apply
//	next
//	    when a tick is due
//	shard NAME [t=ms]
//	    the shard that the directives after it are about; the first is called x
//	import from=NAME BUCKETS epoch=n [bytes=n] [stop=n] [anyway] [restart]
//	    imports what the other shard exports, from where the import is, at most stop chunks
//	copies BUCKETS
//	    copies of the buckets in this shard
//
// BUCKETS are those of a semaphore (of=NAME), of a session's home (home=NAME), or first= and
// count=.
func TestScripts(t *testing.T) {
	datadriven.Walk(t, "testdata/scripts", func(t *testing.T, path string) {
		x := newScriptRunner(t)
		datadriven.RunTest(t, path, x.directive)
	})
}

const scriptBuckets = 256

// scriptSession is a session as a story speaks of it.
type scriptSession struct {
	id, epoch, node uint64
	seq             *uint64
	key, create     [protocol.KeyLen]byte
}

// scriptRunner runs a story against one machine.
type scriptRunner struct {
	t           testing.TB
	m           *Machine
	index       uint64
	time        uint64
	epoch       uint64
	seq         uint64
	sessions    map[string]*scriptSession
	remoteCount uint64
	out         Events
	lines       []string // of the batch going on, for replies
	starts      map[int]string

	current string // the shard the story is at, where there are several
	shards  map[string]*scriptShard
}

func newScriptRunner(t testing.TB) *scriptRunner {
	x := &scriptRunner{t: t, m: New(7), epoch: 1 << 16, time: 1000, sessions: map[string]*scriptSession{}}
	x.apply(AppendCommand(nil, Command{Kind: CmdTakeOver}))
	x.apply(AppendCommand(nil, Command{Kind: CmdBuckets, Body: AppendBuckets(nil, BucketsBody{Total: scriptBuckets, Count: scriptBuckets - 1})}))
	x.apply(AppendCommand(nil, Command{Kind: CmdNodePut, Body: AppendNodePut(nil, NodePutBody{Node: 1, Revision: 1, Config: scriptConfig()})}))
	return x
}

func scriptConfig() protocol.NodeConfig {
	return protocol.NodeConfig{
		SelfCheckPeriod: 1000, GracePeriod: 10_000, ReadConsistency: protocol.Relaxed, AttachConsistency: protocol.Strict,
		CountersMode: protocol.CountersAggregated, MaxSessions: 1_000_000, MaxSemaphores: 1_000_000,
		MaxBytes: protocol.DefaultMaxBytes, MaxWaiters: protocol.DefaultMaxWaiters, MaxWatchers: protocol.DefaultMaxWatchers,
	}
}

// apply applies commands, and checks the invariants.
func (x *scriptRunner) apply(commands []byte) {
	x.t.Helper()
	x.index++
	x.seq++
	entry := AppendHeader(nil, Header{Format: 1, Epoch: x.epoch, Seq: x.seq, LogTime: x.time, Wall: 1_700_000_000_000 + x.time})
	entry = append(entry, commands...)
	x.out.Reset()
	x.m.Apply(x.index, entry, &x.out)
	for i := range entry {
		entry[i] = 0xdb // nothing of the entry may be kept
	}
	if err := x.m.Check(); err != nil {
		x.t.Fatalf("index %d: %v", x.index, err)
	}
}

func (x *scriptRunner) directive(t *testing.T, d *datadriven.TestData) string {
	x.t = t
	switch d.Cmd {
	case "batch", "tick":
		return x.batch(d)
	case "remote":
		name := d.CmdArgs[0].Key
		x.remoteCount++
		x.sessions[name] = &scriptSession{id: protocol.MakeSessionID(0, scriptBuckets-1, x.remoteCount), epoch: 1, node: 1, seq: new(uint64)}
		return ""
	case "alias":
		var of string
		d.ScanArgs(t, "of", &of)
		a := *x.sessions[of]
		x.sessions[d.CmdArgs[0].Key] = &a
		return ""
	case "next":
		at, ok := x.m.NextDeadline()
		if !ok {
			return "never\n"
		}
		if at == x.m.LogTime() {
			return "now\n"
		}
		return fmt.Sprintf("%d\n", at)
	case "limits":
		for _, a := range d.CmdArgs {
			n, _ := strconv.Atoi(a.Vals[0])
			switch a.Key {
			case "waiters":
				x.m.limits.Waiters = n
			case "semaphores":
				x.m.limits.Semaphores = n
			case "answers":
				x.m.limits.Answers = n
			case "deadlines":
				x.m.work.deadlines = n
			case "sweeps":
				x.m.work.sweeps = n
			case "releases":
				x.m.work.releases = n
			}
		}
		return ""
	case "restore":
		return x.restore()
	case "usage":
		node := uint64(1)
		if d.HasArg("node") {
			d.ScanArgs(t, "node", &node)
		}
		u, ok := x.m.Usage(node)
		if !ok {
			return "none\n"
		}
		var b strings.Builder
		for q, name := range []string{"sessions", "semaphores", "bytes", "waiters"} {
			fmt.Fprintf(&b, "%s %d of %d, refused %d\n", name, u.Used[q], u.Limit[q], u.Refused[q])
		}
		return b.String()
	case "process", "processes", "describe", "list", "sessions", "objects", "stream", "remotes", "node", "counters", "busiest":
		return x.read(d)
	case "shard", "import", "copies":
		return x.moveDirective(d)
	}
	t.Fatalf("unknown directive %q", d.Cmd)
	return ""
}

func (x *scriptRunner) restore() string {
	var b bytes.Buffer
	if err := x.m.BeginSnapshot().WriteTo(&b, &sync.Mutex{}); err != nil {
		return err.Error() + "\n"
	}
	m, err := Restore(&b)
	if err != nil {
		return err.Error() + "\n"
	}
	if m.Digest() != x.m.Digest() {
		return "digests differ\n"
	}
	if err := m.Check(); err != nil {
		return err.Error() + "\n"
	}
	x.m = m
	return "ok\n"
}

// scriptArgs are the key=value words of a command's line.
type scriptArgs struct {
	words []string // without a value
	vals  map[string]string
}

func parseScriptArgs(line string) scriptArgs {
	a := scriptArgs{vals: map[string]string{}}
	for _, w := range strings.Fields(line) {
		if k, v, ok := strings.Cut(w, "="); ok {
			a.vals[k] = v
		} else {
			a.words = append(a.words, w)
		}
	}
	return a
}

func (a scriptArgs) has(word string) bool {
	for _, w := range a.words {
		if w == word {
			return true
		}
	}
	return false
}

// num reads a number; MAX is 2^64-1.
func (a scriptArgs) num(key string, otherwise uint64) uint64 {
	v, ok := a.vals[key]
	if !ok {
		return otherwise
	}
	if v == "MAX" {
		return math.MaxUint64
	}
	n, err := strconv.ParseUint(v, 10, 64)
	if err != nil {
		panic(err)
	}
	return n
}

// data reads bytes; SIZE*n is n bytes.
func (a scriptArgs) data(key string) []byte {
	v := a.vals[key]
	if n, ok := strings.CutPrefix(v, "SIZE*"); ok {
		size, _ := strconv.Atoi(n)
		return bytes.Repeat([]byte{'x'}, size)
	}
	return []byte(v)
}

func (x *scriptRunner) batch(d *datadriven.TestData) string {
	for _, a := range d.CmdArgs {
		switch a.Key {
		case "t":
			n, err := strconv.ParseUint(a.Vals[0], 10, 64)
			if err != nil {
				x.t.Fatal(err)
			}
			x.time = n
		case "epoch":
			term, repeat, _ := strings.Cut(a.Vals[0], ".")
			n, _ := strconv.ParseUint(term, 10, 64)
			r, _ := strconv.ParseUint(repeat, 10, 64)
			x.epoch = n<<16 | r
		}
	}
	var commands []byte
	x.lines, x.starts = nil, map[int]string{}
	for _, line := range strings.Split(strings.TrimSpace(d.Input), "\n") {
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		c := x.command(line)
		commands = AppendCommand(commands, c)
		x.lines = append(x.lines, line)
	}
	x.apply(commands)
	return x.output()
}

// command makes a command of a line such as "acquire a jobs count=2 timeout=5000 data=x ephemeral".
// The request number is the session's next, and low the same, unless seq= and low= say otherwise.
// epoch= overrides the attach epoch the server stamps, client= is the description it adds.
func (x *scriptRunner) command(line string) Command {
	a := parseScriptArgs(line)
	verb := a.words[0]
	word := func(i int) string {
		if i < len(a.words) {
			return a.words[i]
		}
		return ""
	}
	who := x.sessions[word(1)]
	if who == nil {
		who = &scriptSession{node: 1, epoch: 1, seq: new(uint64), id: a.num("id", 0)}
	}
	node := a.num("node", who.node)
	epoch := a.num("epoch", who.epoch)
	name := a.data("name")
	if len(name) == 0 {
		name = []byte(word(2))
	}
	head := func() protocol.Head {
		if _, ok := a.vals["seq"]; !ok {
			*who.seq++
		}
		seq := a.num("seq", *who.seq)
		return protocol.Head{Session: who.id, Seq: seq, Low: a.num("low", seq)}
	}
	request := func(kind CommandKind, m protocol.Message) Command {
		return Command{Kind: kind, Node: node, Epoch: epoch, Client: string(a.data("client")), Body: m.AppendBody(nil)}
	}
	switch verb {
	case "start":
		who := x.sessions[word(1)]
		if who == nil {
			who = newScriptSession(word(1), a.num("node", 1))
			x.sessions[word(1)] = who
		}
		x.starts[len(x.lines)] = word(1)
		key, create := who.key[:], who.create[:]
		if v, ok := a.vals["key"]; ok {
			key = []byte(v)
		}
		if v, ok := a.vals["create"]; ok {
			create = []byte(v)
		}
		c := request(CmdSessionStart, &protocol.SessionStart{
			Node: node, CreateID: create, Key: key, Timeout: a.num("timeout", 10_000), Description: string(a.data("desc")),
			Nonce: a.num("nonce", 1),
		})
		c.Client = "10.0.0.1:" + strconv.Itoa(len(word(1)))
		return c
	case "attach":
		key := who.key[:]
		if v, ok := a.vals["key"]; ok {
			key = []byte(v)
		}
		epoch := a.num("epoch", who.epoch+1)
		x.starts[len(x.lines)] = word(1)
		c := request(CmdSessionAttach, &protocol.SessionAttach{
			Session: a.num("id", who.id), Node: node, Epoch: epoch, Key: key, Timeout: a.num("timeout", 10_000), Description: string(a.data("desc")),
			Nonce: a.num("nonce", 1),
		})
		c.Client = "10.0.0.2:1"
		return c
	case "stop":
		return request(CmdSessionStop, &protocol.SessionStop{Session: who.id, Epoch: epoch})
	case "kill":
		return request(CmdSessionKill, &protocol.SessionKill{Session: who.id, Node: node, Reason: cmp.Or(string(a.data("reason")), "maintenance")})
	case "force-release":
		first := a.num("order", 0)
		return request(CmdForceRelease, &protocol.ForceRelease{
			Node: node, Name: []byte(word(1)), First: first, Last: a.num("last", first), Reason: strings.ReplaceAll(a.vals["reason"], "-", " "),
		})
	case "create":
		return request(CmdCreate, &protocol.Create{Head: head(), Name: name, Limit: a.num("limit", 1), Data: a.data("data")})
	case "update":
		return request(CmdUpdate, &protocol.Update{Head: head(), Name: name, Data: a.data("data"), Expected: a.num("expected", 0)})
	case "resize":
		return request(CmdResize, &protocol.Resize{Head: head(), Name: name, Limit: a.num("limit", 1)})
	case "delete":
		return request(CmdDelete, &protocol.Delete{Head: head(), Name: name, Force: a.has("force")})
	case "acquire":
		return request(CmdAcquire, &protocol.Acquire{
			Head: head(), Name: name, Count: a.num("count", 1), Timeout: a.num("timeout", math.MaxUint64), Data: a.data("data"), Ephemeral: a.has("ephemeral"),
		})
	case "release":
		return request(CmdRelease, &protocol.Release{Head: head(), Name: name, OrderID: a.num("order", 0)})
	case "takeover":
		return Command{Kind: CmdTakeOver}
	case "handover":
		if a.has("off") {
			return Command{Kind: CmdHandOver, Body: HandOverCancelled}
		}
		return Command{Kind: CmdHandOver, Body: HandOverBegins}
	case "detach":
		var b DetachBody
		for _, w := range a.words[1:] {
			who := x.sessions[w]
			b.Sessions = append(b.Sessions, DetachItem{who.id, a.num("epoch", who.epoch), a.num("last-contact", x.time)})
		}
		return Command{Kind: CmdDetach, Body: AppendDetach(nil, b)}
	case "remote-ended":
		var b RemoteEndedBody
		for _, w := range a.words[1:] {
			b.Sessions = append(b.Sessions, x.sessions[w].id)
		}
		return Command{Kind: CmdRemoteEnded, Body: AppendRemoteEnded(nil, b)}
	case "remote-update":
		return Command{Kind: CmdRemoteUpdate, Body: AppendRemoteUpdate(nil, RemoteUpdateBody{
			Session: who.id, Epoch: a.num("epoch", who.epoch), Description: string(a.data("desc")), Detached: a.has("detached"),
		})}
	case "node":
		c := scriptConfig()
		c.GracePeriod = a.num("grace", c.GracePeriod)
		c.MaxSessions, c.MaxSemaphores = a.num("sessions", c.MaxSessions), a.num("semaphores", c.MaxSemaphores)
		c.MaxBytes, c.MaxWaiters = a.num("bytes", c.MaxBytes), a.num("waiters", c.MaxWaiters)
		if a.has("detailed") {
			c.CountersMode = protocol.CountersDetailed
		}
		return Command{Kind: CmdNodePut, Body: AppendNodePut(nil, NodePutBody{a.num("id", 1), a.num("revision", 1), c})}
	case "drop":
		return Command{Kind: CmdNodeDrop, Body: AppendNodeDrop(nil, NodeDropBody{a.num("id", 1)})}
	case "buckets":
		return Command{Kind: CmdBuckets, Body: AppendBuckets(nil, BucketsBody{
			uint8(a.num("tier", 0)), uint32(a.num("total", scriptBuckets)), uint32(a.num("first", 0)), uint32(a.num("count", 1)), a.num("epoch", 0),
		})}
	case "freeze", "activate", "dropcopy":
		kind := map[string]CommandKind{"freeze": CmdFreeze, "activate": CmdActivate, "dropcopy": CmdDropBuckets}[verb]
		return Command{Kind: kind, Body: AppendBuckets(nil, x.bucketsOf(a))}
	case "track":
		return request(CmdTrackCreate, &protocol.TrackCreate{Head: head(), Name: name, Config: protocol.TrackConfig{
			Source: protocol.SourcePublished, Locations: []protocol.LocationConfig{{Name: "SAS"}},
		}})
	case "instance":
		return request(CmdTrackRegister, &protocol.TrackRegister{
			Head: head(), Name: name, ID: string(a.data("id")), Location: "SAS", Role: protocol.InstanceFollower, Takeover: a.has("takeover"),
		})
	case "raw":
		return Command{Kind: CommandKind(a.num("kind", 34)), Node: 1, Epoch: 1, Body: a.data("body")}
	}
	if kind, m := processCommand(verb, a, name, who.id, head); m != nil {
		return request(kind, m)
	}
	x.t.Fatalf("unknown command %q", line)
	return Command{}
}

// newScriptSession derives a session's key, and a create id whose home bucket is active, from its
// name.
func newScriptSession(name string, node uint64) *scriptSession {
	a := &scriptSession{node: node, epoch: 1, seq: new(uint64)}
	copy(a.key[:], "key of "+name)
	for i := 0; ; i++ {
		a.create = [protocol.KeyLen]byte{}
		copy(a.create[:], fmt.Sprintf("%d %s", i, name))
		if protocol.HomeBucket(a.create, scriptBuckets) != scriptBuckets-1 {
			return a
		}
	}
}

func (x *scriptRunner) sessionName(id uint64) string {
	best := ""
	for name, a := range x.sessions {
		if a.id == id && (best == "" || name < best) {
			best = name
		}
	}
	if best == "" {
		return fmt.Sprintf("session %d", id)
	}
	return best
}

func stateWord(s protocol.AcquireState) string {
	switch s {
	case protocol.Acquired:
		return "acquired"
	case protocol.NotAcquired:
		return "not acquired"
	case protocol.Accepted:
		return "accepted"
	}
	return "no state"
}

var reasonWords = map[protocol.EndReason]string{
	protocol.EndStopped: "stopped", protocol.EndExpired: "expired", protocol.EndKilled: "killed", protocol.EndNodeDropped: "node dropped",
}

// tell prints what left the last Apply.
func (x *scriptRunner) output() string {
	for _, e := range x.out.List {
		if e.Kind == EventReply && e.Status == protocol.StatusOK && e.Session != 0 {
			if name, ok := x.starts[e.Command]; ok {
				x.sessions[name].id, x.sessions[name].epoch = e.Session, e.Epoch
			}
		}
	}
	var b strings.Builder
	for _, e := range x.out.List {
		x.event(&b, &e)
	}
	x.processChanges(&b)
	for _, c := range x.out.SemaphoreChanges {
		fmt.Fprintf(&b, "  change %s: ", shortName(c.Name))
		switch o := c.Owner; c.Kind {
		case protocol.ChangeCreated:
			fmt.Fprintf(&b, "created limit=%s ephemeral=%v version=%d data=%q\n", limitWord(c.Limit), c.Ephemeral, c.Version, shortName(c.Data))
		case protocol.ChangeDeleted:
			b.WriteString("deleted\n")
		case protocol.ChangeData:
			fmt.Fprintf(&b, "data=%q version=%d\n", c.Data, c.Version)
		case protocol.ChangeLimit:
			fmt.Fprintf(&b, "limit=%s\n", limitWord(c.Limit))
		case protocol.ChangeOwnerAdded:
			fmt.Fprintf(&b, "owner added #%d %s count=%s data=%q\n", o.OrderID, x.sessionName(o.Session), limitWord(o.Count), shortName(o.Data))
		case protocol.ChangeOwnerChanged:
			fmt.Fprintf(&b, "owner changed #%d %s count=%s data=%q\n", o.OrderID, x.sessionName(o.Session), limitWord(o.Count), shortName(o.Data))
		case protocol.ChangeOwnerRemoved:
			fmt.Fprintf(&b, "owner removed #%d %s\n", o.OrderID, x.sessionName(o.Session))
		}
	}
	if b.Len() == 0 {
		return "nothing\n"
	}
	return b.String()
}

// shortName keeps long names out of the stories.
func shortName(name []byte) string {
	if len(name) > 60 {
		return fmt.Sprintf("(%d bytes)", len(name))
	}
	return string(name)
}

func limitWord(n uint64) string {
	if n == math.MaxUint64 {
		return "MAX"
	}
	return strconv.FormatUint(n, 10)
}

func (x *scriptRunner) event(b *strings.Builder, e *Event) {
	switch e.Kind {
	case EventReply:
		line := ""
		if e.Command < len(x.lines) {
			line = x.lines[e.Command]
		}
		words := parseScriptArgs(line).words
		if len(words) > 3 {
			words = words[:3]
		}
		fmt.Fprintf(b, "%s -> ", strings.Join(words, " "))
		if e.Status != protocol.StatusOK {
			fmt.Fprintf(b, "%s: %s\n", e.Status.String(), e.Text)
			return
		}
		b.WriteString("OK")
		verb := ""
		if len(words) > 0 {
			verb = words[0]
		}
		switch verb {
		case "join":
			fmt.Fprintf(b, " #%d topology=%d returned=%v again=%v", e.OrderID, e.Result, e.Flag, e.AlreadyMember)
		case "quit":
			fmt.Fprintf(b, " settled=%d", e.Result)
		case "acquire":
			b.WriteString(" " + stateWord(e.State))
			if e.OrderID != 0 {
				fmt.Fprintf(b, " #%d", e.OrderID)
			}
		case "instance":
			fmt.Fprintf(b, " incarnation=%d", e.Result)
		case "release":
			fmt.Fprintf(b, " released=%v", e.Flag)
		case "force-release":
			fmt.Fprintf(b, " released=%d", e.Result)
		case "update":
			fmt.Fprintf(b, " version=%d", e.Result)
		case "start", "attach":
			fmt.Fprintf(b, " epoch=%d timeout=%d grace=%d", e.Epoch, e.Timeout, e.Grace)
		}
		b.WriteString("\n")
	case EventAcquireResult:
		fmt.Fprintf(b, "  result for %s of request %d on %s: ", x.sessionName(e.Session), e.Seq, e.Name)
		if e.Status != protocol.StatusOK {
			fmt.Fprintf(b, "%s: %s\n", e.Status.String(), e.Text)
			return
		}
		fmt.Fprintf(b, "%s #%d\n", stateWord(e.State), e.OrderID)
	case EventLeaseLost:
		fmt.Fprintf(b, "  lease of %s on %s #%d lost: %s\n", x.sessionName(e.Session), e.Name, e.OrderID, e.Text)
	case EventSessionAttached:
		fmt.Fprintf(b, "  %s attached epoch=%d timeout=%d\n", x.sessionName(e.Session), e.Epoch, e.Timeout)
	case EventSessionDetached:
		fmt.Fprintf(b, "  %s detached epoch=%d\n", x.sessionName(e.Session), e.Epoch)
	case EventSessionEnded:
		fmt.Fprintf(b, "  %s ended, %s: %s\n", x.sessionName(e.Session), reasonWords[e.Reason], e.Text)
	case EventRemoteHeld:
		fmt.Fprintf(b, "  remote session %s holds or waits here, epoch=%d\n", x.sessionName(e.Session), e.Epoch)
	case EventRemoteIdle:
		fmt.Fprintf(b, "  remote session %s is idle\n", x.sessionName(e.Session))
	case EventTookOver:
		fmt.Fprintf(b, "  took over, term %d repeated take-over %d\n", e.Epoch>>16, e.Epoch&0xffff)
	case EventNodeDropped:
		fmt.Fprintf(b, "  node %d dropped\n", e.Node)
	case EventRefused:
		b.WriteString("  batch refused\n")
	case EventBucketsFrozen, EventBucketsActive, EventBucketsLeft:
		word := map[EventKind]string{EventBucketsFrozen: "frozen", EventBucketsActive: "active", EventBucketsLeft: "left"}[e.Kind]
		fmt.Fprintf(b, "  %d buckets %s, epoch %d\n", e.Count, word, e.Epoch)
	case EventProcess:
		x.round(b, e)
	default:
		fmt.Fprintf(b, "  event %d\n", e.Kind)
	}
}

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
	case "list":
		req := protocol.List{Node: node, Prefix: a.data("prefix"), Limit: uint32(a.num("limit", 0))}
		if who := a.vals["session"]; who != "" {
			req.Session = x.sessions[who].id
		}
		for more := true; more; more = len(req.Cursor) > 0 {
			var r protocol.ListReply
			if err := x.m.List(&req, &r); err != nil {
				return err.Error() + "\n"
			}
			for _, s := range r.Semaphores {
				fmt.Fprintf(&b, "%s limit=%s used=%s ephemeral=%v version=%d data=%d bytes owners=%d waiters=%d", shortName(s.Name), limitWord(s.Limit), limitWord(s.Used),
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
			if err := x.m.SessionList(&req, &r); err != nil {
				return err.Error() + "\n"
			}
			for _, s := range r.Sessions {
				fmt.Fprintf(&b, "%s state=%d epoch=%d timeout=%d remaining=%d desc=%q client=%s\n", x.sessionName(s.Session), s.State, s.Epoch, s.Timeout, s.Remaining,
					s.Description, s.Client)
			}
			if req.Cursor = r.Cursor; len(r.Cursor) > 0 {
				b.WriteString("-- next page\n")
			}
		}
	case "objects":
		req := protocol.SessionObjects{Node: node, Limit: uint32(a.num("limit", 0))}
		if s := x.sessions[a.vals["session"]]; s != nil {
			req.Session = s.id
		}
		if after := a.vals["after"]; after != "" { // such as 1mail: the type and the name
			req.Cursor = append([]byte{after[0] - '0'}, after[1:]...)
		}
		types := map[protocol.ObjectType]string{protocol.ObjectProcess: "process", protocol.ObjectTrack: "track"}
		for more := true; more; more = len(req.Cursor) > 0 {
			var r protocol.SessionObjectsReply
			if err := x.m.SessionObjects(&req, &r); err != nil {
				return err.Error() + "\n"
			}
			for _, o := range r.Objects {
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
			cursor, err = x.m.StreamSnapshot(node, a.data("name"), a.has("prefix"), cursor, int(a.num("bytes", 0)), &r)
			if err != nil {
				return err.Error() + "\n"
			}
			fmt.Fprintf(&b, "page first=%v last=%v\n", r.First, r.Last)
			for _, s := range r.Semaphores {
				fmt.Fprintf(&b, "  %s limit=%s ephemeral=%v version=%d data=%q owners:", s.Name, limitWord(s.Limit), s.Ephemeral, s.Version, s.Data)
				for _, o := range s.Owners {
					fmt.Fprintf(&b, " #%d %s", o.OrderID, x.sessionName(o.Session))
				}
				b.WriteString("\n")
			}
		}
	case "remotes":
		x.m.RemoteSessions(func(id, epoch uint64) bool {
			fmt.Fprintf(&b, "%s epoch=%d\n", x.sessionName(id), epoch)
			return true
		})
	case "counters":
		x.m.Counters(func(r CounterRow) bool {
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
		if n := x.m.Sizes().Stuck; n > 0 {
			fmt.Fprintf(&b, "%d queues cannot move\n", n)
		}
	case "busiest":
		most, in := int(a.num("most", 10)), func(id uint64) bool { return a.vals["node"] == "" || id == node }
		for _, list := range []struct {
			title string
			rows  []BusySemaphore
		}{{"longest queues", x.m.LongestQueues(most, in)}, {"oldest waits", x.m.OldestWaits(most, in)}} {
			fmt.Fprintf(&b, "%s:\n", list.title)
			for _, l := range list.rows {
				fmt.Fprintf(&b, "  %s of node %d: %s of %s used, %d owners, %d waiters since %d", l.Name, l.Node, limitWord(l.Used), limitWord(l.Limit), l.Owners, l.Waiters, l.WaitingSince-1_700_000_000_000)
				if l.Stuck {
					b.WriteString(", stuck")
				}
				b.WriteString("\n")
			}
		}
		b.WriteString("most entries:\n")
		for _, l := range x.m.MostEntries(most, in) {
			fmt.Fprintf(&b, "  %s of node %d: holds %d, waits for %d\n", x.sessionName(l.Session), l.Node, l.Held, l.Waiting)
		}
	case "node":
		_, ok := x.m.Node(node)
		fmt.Fprintf(&b, "known=%v\n", ok)
	}
	if b.Len() == 0 {
		return "nothing\n"
	}
	return b.String()
}

func (x *scriptRunner) describe(b *strings.Builder, a scriptArgs, node uint64) {
	req := protocol.Describe{Node: node, Name: []byte(a.words[0]), Limit: uint32(a.num("limit", 0)), Flags: protocol.WithOwners | protocol.WithWaiters}
	for more := true; more; more = len(req.Cursor) > 0 {
		var r protocol.DescribeReply
		if err := x.m.Describe(&req, &r); err != nil {
			fmt.Fprintf(b, "%v\n", err)
			return
		}
		fmt.Fprintf(b, "%s limit=%s used=%s ephemeral=%v version=%d data=%q owners=%d waiters=%d\n", r.Name, limitWord(r.Limit), limitWord(r.Used), r.Ephemeral,
			r.Version, r.Data, r.NumOwners, r.NumWaiters)
		for _, o := range r.Owners {
			fmt.Fprintf(b, "  owner #%d %s count=%s data=%q desc=%q\n", o.OrderID, x.sessionName(o.Session), limitWord(o.Count), o.Data, o.Description)
		}
		for _, w := range r.Waiters {
			fmt.Fprintf(b, "  waiter #%d %s count=%s data=%q desc=%q timeout=%s\n", w.OrderID, x.sessionName(w.Session), limitWord(w.Count), w.Data, w.Description,
				limitWord(w.Timeout))
		}
		if req.Cursor = r.Cursor; len(r.Cursor) > 0 {
			b.WriteString("-- next page\n")
		}
	}
}
