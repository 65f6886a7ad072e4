package shard

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/protocol/varint"
	"github.com/signalbox-dev/signalbox/shard/formattest"
)

// TestFormat compares each command, each record of a snapshot and each record of a chunk with
// testdata/format-N.golden, and fails for a kind that the file lacks.
func TestFormat(t *testing.T) {
	x := &formatStory{scriptRunner: newScriptRunner(t), orders: map[string]string{}}
	x.golden.Add("header", "", AppendHeader(nil, Header{Format: FormatVersion, Epoch: 1<<16 + 2, Seq: 3, LogTime: 4, Wall: 5}))
	x.commands()

	for kind := range applyCommand {
		if applyCommand[kind] != nil || CommandKind(kind) == CmdTakeOver {
			x.has("command", kind)
		}
	}
	for file, constant := range map[string]string{
		"record.go": `(?m)^\s+(record)[A-Z]\w+\s+recordKind = (\d+)`,
		"chunk.go":  `(?m)^\s+(chunk)[A-Z]\w+\s+= (\d+)`,
	} {
		source, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(constant).FindAllStringSubmatch(string(source), -1) {
			x.has(m[1], m[2])
		}
	}
	x.golden.Check(t, FormatVersion)
}

// formatStory makes every kind of command, and a state with every kind of record.
type formatStory struct {
	*scriptRunner
	golden formattest.Golden
	orders map[string]string // of the last acquire, by "session name"
	result uint64            // of the last reply
}

func (x *formatStory) has(what string, kind any) {
	if name := fmt.Sprintf("%s %v", what, kind); !x.golden.Has(name) {
		x.t.Errorf("no %s in the story of this test; add it", name)
	}
}

// do applies commands in one batch. All must succeed.
func (x *formatStory) do(lines ...string) {
	x.t.Helper()
	list := make([]Command, len(lines))
	x.lines, x.starts = nil, map[int]string{}
	for i, line := range lines {
		list[i] = x.command(line)
		x.lines = append(x.lines, line)
	}
	x.applyAll(list)
}

// ask applies one request whose words no script has.
func (x *formatStory) ask(kind CommandKind, m protocol.Message) {
	x.t.Helper()
	x.lines, x.starts = []string{"request"}, nil
	x.applyAll([]Command{{Kind: kind, Node: 1, Epoch: 1, Body: protocol.AppendBody(nil, m)}})
}

func (x *formatStory) applyAll(list []Command) {
	x.t.Helper()
	var commands []byte
	for i, c := range list {
		b := AppendCommand(nil, c)
		x.golden.Add(fmt.Sprintf("command %d", c.Kind), strings.SplitN(x.lines[i], " ", 2)[0], b)
		commands = append(commands, b...)
	}
	x.apply(commands)
	for i := range x.out.List {
		e := &x.out.List[i]
		if e.Kind != EventReply {
			continue
		}
		if e.Status != protocol.StatusOK {
			x.t.Errorf("%s: %s %s", x.lines[e.Command], e.Status, e.Text)
		}
		if words := strings.Fields(x.lines[e.Command]); words[0] == "acquire" {
			x.orders[words[1]+" "+words[2]] = fmt.Sprint(e.OrderID)
		}
		x.result = e.Result
	}
	x.output()
}

// head is the head of a session's next request.
func (x *formatStory) head(session string) protocol.Head {
	s := x.sessions[session]
	*s.seq++
	return protocol.Head{Session: s.id, Seq: *s.seq, Low: *s.seq}
}

// round is the epoch of the round of a process.
func (x *formatStory) round(name string) string {
	var s protocol.ProcessStatus
	if err := x.m.Processes().Describe(&protocol.ProcessDescribe{Node: 1, Name: []byte(name), Consistency: protocol.Relaxed}, &s); err != nil {
		x.t.Fatal(err)
	}
	return fmt.Sprint(s.Epoch)
}

// commands makes every kind of command, and then a state with every kind of record.
func (x *formatStory) commands() {
	x.do("node id=1 revision=2 priority=7", "node id=2", "buckets first=0 epoch=1")
	x.do("start a desc=worker", "start b", "start c", "start d timeout=500")
	x.do("start e parent=a")
	x.sessions["far"] = &scriptSession{id: protocol.MakeSessionID(0, scriptBuckets-1, 9), epoch: 1, node: 1, seq: new(uint64)}
	x.sessions["farther"] = &scriptSession{id: protocol.MakeSessionID(0, scriptBuckets-1, 10), epoch: 1, node: 1, seq: new(uint64)}
	x.do("remote-update far desc=elsewhere", "remote-update farther desc=elsewhere")
	x.do("attach c desc=again")

	// Semaphores, plain ones and others.
	x.do("create a pool limit=4 data=v1", "create a idle", "create a gone",
		"create a gpus limit=4 policy=fair weights=k:2,l:3 slots=s0+x,s1+x,s2,s3 history=4 max-hold=60000 preempt=any grace=5000")
	x.do("acquire a pool count=3 data=x", "acquire b pool count=4 timeout=50000", "acquire far pool", "acquire farther pool",
		"acquire a gpus count=2 priority=2 key=k labels=x hold=50000 knows", "acquire b gpus count=3 priority=3 key=l knows",
		"acquire a lock ephemeral count=MAX", "acquire b lock ephemeral")
	x.do("resize a idle limit=2", "update a idle data=w", "alter-sem a gpus history=3 drain=s3", "delete a gone")
	x.do("acquire a idle", "acquire b idle")
	x.do("release b idle order=" + x.orders["b idle"])

	// A process, a track and two limits.
	x.do("join a p key=k data=x", "join b p")
	x.time += 10
	x.do("alter a p round=60000")
	e := x.round("p")
	x.do("confirm a p prepared of="+e, "confirm b p prepared of="+e)
	x.do("complete a p of=" + e + " result=r")
	x.do("confirm b p of=" + e)
	x.do("force a p text=again")
	x.do("join a q", "join b q")
	x.time += 10
	x.do("alter a q round=60000")
	x.do("fail b q text=broken of=" + x.round("q"))
	x.do("quit b p", "evict a p text=away", "join b p key=k")
	x.tracks()
	x.do("limit a api rate=1000", "limit a api/x rate=500 min=100", "limit a api/y rate=5", "limit a api/"+strings.Repeat("z", 100), "use a api/x", "use b api")
	x.do("relimit a api/x rate=400", "unlimit a api/y", "unuse b api")

	x.do("force-release pool order="+x.orders["far pool"]+" reason=stuck", "detach d", "kill e reason=maintenance")
	x.time += 1000
	x.do("acquire far pool", "stop c")
	x.do("remote-ended far")
	x.do("drop id=2")
	x.do("transfer")
	x.do("transfer off")
	x.epoch = 2 << 16
	x.do("takeover")
	x.records()
	x.move()
}

// tracks has a track with published versions and a gate, one with versions from outside, and one
// that goes again.
func (x *formatStory) tracks() {
	name := []byte("geo/base")
	config := protocol.TrackConfig{Source: protocol.SourcePublished, ExplicitCodes: []string{"bad"},
		Locations: []protocol.LocationConfig{{Name: "SAS", Gates: []protocol.GateConfig{{Name: "g", Kind: protocol.GateCommand, Spec: "true"}}},
			{Name: "MAN", Delay: 5000}}}
	x.ask(CmdTrackCreate, &protocol.TrackCreate{Head: x.head("a"), Name: name, Config: config})
	config.Retention = 100_000
	x.ask(CmdTrackAlter, &protocol.TrackAlter{Head: x.head("a"), Name: name, Revision: x.result, Config: config})
	x.ask(CmdTrackRegister, &protocol.TrackRegister{Head: x.head("a"), Name: name, ID: "i1", Location: "SAS",
		Role: protocol.InstanceLeader, Meta: "m"})
	leader := x.result
	x.ask(CmdTrackRegister, &protocol.TrackRegister{Head: x.head("b"), Name: name, ID: "i2", Location: "MAN",
		Role: protocol.InstanceFollower})
	follower := x.result
	x.ask(CmdTrackPublish, &protocol.TrackPublish{Head: x.head("a"), Name: name, Version: 42, Payload: []byte("v42")})
	poll := &protocol.TrackPoll{Session: x.sessions["a"].id, Name: name, ID: "i1", Incarnation: leader,
		Report: protocol.UpdateReport{Seq: 1, Current: 1}, WithPayload: true}
	x.ask(CmdTrackPoll, poll) // the gate begins
	x.ask(CmdTrackGate, &protocol.TrackGateReport{Head: x.head("a"), Name: name, Location: "SAS", Version: 42, Gate: "g",
		Attempt: 1, Outcome: protocol.GateSuccess, Text: "fine"})
	report := protocol.UpdateReport{Seq: 2, Current: 1, Target: 42, Code: "bad", Message: "disk", Attempts: 2}
	x.ask(CmdTrackPoll, poll)
	x.ask(CmdTrackReport, &protocol.TrackReport{Session: x.sessions["a"].id, Name: name, ID: "i1", Incarnation: leader, Report: report})
	x.ask(CmdTrackRole, &protocol.TrackSetRole{Head: x.head("b"), Name: name, ID: "i2", Incarnation: follower, Role: protocol.InstanceLeader})
	x.ask(CmdTrackPublish, &protocol.TrackPublish{Head: x.head("a"), Name: name, Version: 43})
	x.ask(CmdTrackWithdraw, &protocol.TrackWithdraw{Head: x.head("a"), Name: name, Version: 43})
	x.ask(CmdTrackAdmin, &protocol.TrackAdmin{Head: x.head("a"), Name: name, Verb: protocol.TrackPause,
		Locations: []string{"MAN"}, Reason: "later"})
	x.ask(CmdTrackUnregister, &protocol.TrackUnregister{Head: x.head("b"), Name: name, ID: "i2", Incarnation: follower})

	outside := []byte("geo/other")
	x.ask(CmdTrackCreate, &protocol.TrackCreate{Head: x.head("a"), Name: outside, Config: protocol.TrackConfig{
		Source: protocol.SourceExternal, Locations: []protocol.LocationConfig{{Name: "SAS"}}}})
	x.ask(CmdTrackRegister, &protocol.TrackRegister{Head: x.head("a"), Name: outside, ID: "i1", Location: "SAS", Role: protocol.InstanceLeader})
	x.ask(CmdTrackPoll, &protocol.TrackPoll{Session: x.sessions["a"].id, Name: outside, ID: "i1", Incarnation: x.result})
	x.ask(CmdTrackAdvance, &protocol.TrackAdvance{Head: x.head("a"), Name: outside, Version: 7})
	x.ask(CmdTrackCreate, &protocol.TrackCreate{Head: x.head("a"), Name: []byte("geo/gone"), Config: config})
	x.ask(CmdTrackDelete, &protocol.TrackDelete{Head: x.head("a"), Name: []byte("geo/gone"), Force: true})
}

// records adds the first record of each kind of a snapshot.
func (x *formatStory) records() {
	r := recordReader{buf: snapshotRecords(x.t, x.m)}
	for len(r.buf) > r.pos {
		kind, fields, err := r.next()
		if err != nil {
			x.t.Fatal(err)
		}
		if name := fmt.Sprintf("record %d", kind); !x.golden.Has(name) {
			x.golden.Add(name, "", fields)
		}
	}
	x.golden.Add("snapshot", "begins", snapshotOf(x.t, x.m)[:introLen])
}

// move adds the steps of a move to another shard, and the first record of each kind of its chunks,
// which are so small that objects come in parts.
func (x *formatStory) move() {
	run := BucketsBody{Total: scriptBuckets, Count: scriptBuckets - 1, Epoch: 2}
	steps := func(kind CommandKind, name string, body []byte) {
		x.lines, x.starts = []string{name}, nil
		x.applyAll([]Command{{Kind: kind, Body: body}})
	}
	steps(CmdFreeze, "freeze", AppendBuckets(nil, run))
	source := x.m
	x.switchShard("target", x.time)
	var cursor []byte
	for first := true; first || cursor != nil; first = false {
		part, next, err := source.Buckets().Export(run.First, run.Count, run.Epoch, cursor, 100)
		if err != nil {
			x.t.Fatal(err)
		}
		chunk, ok := readChunk(part, &run)
		if !ok {
			x.t.Fatal("the chunk cannot be read")
		}
		added := false
		for r := (varint.Reader{Rest: chunk.records}); len(r.Rest) > 0; {
			kind, fields := r.Byte(), r.Bytes(varint.NoLimit)
			if name := fmt.Sprintf("chunk %d", kind); !x.golden.Has(name) {
				x.golden.Add(name, "", fields)
				added = true
			}
		}
		if body := AppendImport(nil, ImportBody{run, part}); added {
			steps(CmdImport, "import", body)
		} else {
			x.apply(AppendCommand(nil, Command{Kind: CmdImport, Body: body}))
		}
		cursor = next
	}
	steps(CmdActivate, "activate", AppendBuckets(nil, run))
	x.switchShard("x", 0)
	steps(CmdDropBuckets, "drop copies", AppendBuckets(nil, run))
}
