package shard

import (
	"bytes"
	"cmp"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/cockroachdb/datadriven"

	"github.com/signalbox-dev/signalbox/protocol"
)

// scriptSession is a session as a story speaks of it.
type scriptSession struct {
	id, epoch, node uint64
	seq             *uint64
	key, create     [protocol.KeyLen]byte
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
		return Command{Kind: kind, Node: node, Epoch: epoch, Sender: string(a.data("client")),
			Body: protocol.AppendBody(nil, m)}
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
		parent := uint64(0)
		if s := x.sessions[a.vals["parent"]]; s != nil {
			parent = s.id
		}
		c := request(CmdSessionStart, &protocol.SessionStart{
			Node: node, CreateID: create, Key: key, Timeout: a.num("timeout", 10_000),
			Description: string(a.data("desc")),
			Nonce:       a.num("nonce", 1), Parent: parent,
		})
		c.Sender = "10.0.0.1:" + strconv.Itoa(len(word(1)))
		return c
	case "attach":
		key := who.key[:]
		if v, ok := a.vals["key"]; ok {
			key = []byte(v)
		}
		epoch := a.num("epoch", who.epoch+1)
		x.starts[len(x.lines)] = word(1)
		c := request(CmdSessionAttach, &protocol.SessionAttach{
			Session: a.num("id", who.id), Node: node, Epoch: epoch, Key: key, Timeout: a.num("timeout", 10_000),
			Description: string(a.data("desc")),
			Nonce:       a.num("nonce", 1),
		})
		c.Sender = "10.0.0.2:1"
		return c
	case "stop":
		return request(CmdSessionStop, &protocol.SessionStop{Session: who.id, Epoch: epoch})
	case "kill":
		return request(CmdSessionKill, &protocol.SessionKill{Session: who.id, Node: node,
			Reason: cmp.Or(string(a.data("reason")), "maintenance")})
	case "force-release":
		first := a.num("order", 0)
		return request(CmdForceRelease, &protocol.ForceRelease{
			Node: node, Name: []byte(word(1)), First: first, Last: a.num("last", first),
			Reason: strings.ReplaceAll(a.vals["reason"], "-", " "),
		})
	case "create":
		c := &protocol.Create{Head: head(), Name: name, Limit: a.num("limit", 1), Data: a.data("data")}
		if o, fields := a.options(); fields != 0 {
			c.Options = &o
		}
		return request(CmdCreate, c)
	case "alter-sem":
		o, fields := a.options()
		return request(CmdAlter, &protocol.Alter{Head: head(), Name: name, Fields: fields, Options: o,
			Drain: a.list("drain"), Undrain: a.list("undrain")})
	case "update":
		return request(CmdUpdate,
			&protocol.Update{Head: head(), Name: name, Data: a.data("data"), Expected: a.num("expected", 0)})
	case "resize":
		return request(CmdResize, &protocol.Resize{Head: head(), Name: name, Limit: a.num("limit", 1), Expected: a.num("expected", 0)})
	case "delete":
		return request(CmdDelete, &protocol.Delete{Head: head(), Name: name, Force: a.has("force"), Expected: a.num("expected", 0)})
	case "acquire":
		return request(CmdAcquire, &protocol.Acquire{
			Head: head(), Name: name, Count: a.num("count", 1), Timeout: a.num("timeout", math.MaxUint64),
			Data: a.data("data"), Ephemeral: a.has("ephemeral"), Options: a.asked(),
		})
	case "release":
		m := &protocol.Release{Head: head(), Name: name, OrderID: a.num("order", 0)}
		if a.has("at-max-hold") {
			m.Bound = protocol.HoldMaxHold
		}
		if to := x.sessions[a.vals["to"]]; to != nil {
			m.To = to.id
		}
		return request(CmdRelease, m)
	case "takeover":
		return Command{Kind: CmdTakeOver}
	case "transfer":
		if a.has("off") {
			return Command{Kind: CmdTransfer, Body: TransferCancelled}
		}
		return Command{Kind: CmdTransfer, Body: TransferBegins}
	case "detach":
		b := DetachBody{Stood: a.num("stood", 0), StoodAt: x.time}
		for _, w := range a.words[1:] {
			who := x.sessions[w]
			b.Sessions = append(b.Sessions,
				DetachItem{who.id, a.num("epoch", who.epoch), a.num("last-contact", x.time), protocol.Link(a.num("link", 0))})
		}
		return Command{Kind: CmdDetach, Body: AppendDetach(nil, b)}
	case "remote-ended":
		var b RemoteEndedBody
		for _, w := range a.words[1:] {
			how := protocol.Ending{Link: protocol.Link(a.num("link", 0)), Silent: a.num("silent", 0)}
			if how.Link != 0 {
				how.Reason = protocol.EndExpired
			}
			b.Sessions = append(b.Sessions, RemoteEnd{x.sessions[w].id, how})
		}
		return Command{Kind: CmdRemoteEnded, Body: AppendRemoteEnded(nil, b)}
	case "remote-update":
		return Command{Kind: CmdRemoteUpdate, Body: AppendRemoteUpdate(nil, RemoteUpdateBody{
			Session: who.id, Epoch: a.num("epoch", who.epoch), Description: string(a.data("desc")),
			Detached: a.has("detached"),
		})}
	case "node":
		c := scriptConfig()
		c.GracePeriod = a.num("grace", c.GracePeriod)
		c.MaxSessions, c.MaxSemaphores = a.num("sessions", c.MaxSessions), a.num("semaphores", c.MaxSemaphores)
		c.MaxBytes, c.MaxWaiters = a.num("bytes", c.MaxBytes), a.num("waiters", c.MaxWaiters)
		c.MaxPriority = uint8(a.num("priority", 0))
		if a.has("detailed") {
			c.CountersMode = protocol.CountersDetailed
		}
		return Command{Kind: CmdNodePut,
			Body: AppendNodePut(nil, NodePutBody{a.num("id", 1), a.num("revision", 1), c, a.num("tokens", 0)})}
	case "drop":
		return Command{Kind: CmdNodeDrop, Body: AppendNodeDrop(nil, NodeDropBody{a.num("id", 1)})}
	case "buckets":
		return Command{Kind: CmdBuckets, Body: AppendBuckets(nil, BucketsBody{
			uint8(a.num("tier", 0)), uint32(a.num("total", scriptBuckets)), uint32(a.num("first", 0)),
			uint32(a.num("count", 1)), a.num("epoch", 0),
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
			Head: head(), Name: name, ID: string(a.data("id")), Location: "SAS",
			Role: protocol.InstanceFollower, Takeover: a.has("takeover"),
		})
	case "raw":
		return Command{Kind: CommandKind(a.num("kind", 34)), Node: 1, Epoch: 1, Body: a.data("body")}
	}
	if kind, m := rateLimitCommand(verb, a, name, head); m != nil {
		return request(kind, m)
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
