package shard

import (
	"bytes"
	"flag"
	"fmt"
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
//	describe/history/list/sessions/objects/stream/remotes/process/processes/busiest
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
	x.apply(AppendCommand(nil, Command{Kind: CmdBuckets,
		Body: AppendBuckets(nil, BucketsBody{Total: scriptBuckets, Count: scriptBuckets - 1})}))
	x.apply(AppendCommand(nil, Command{Kind: CmdNodePut,
		Body: AppendNodePut(nil, NodePutBody{Node: 1, Revision: 1, Config: scriptConfig()})}))
	return x
}

func scriptConfig() protocol.NodeConfig {
	return protocol.NodeConfig{
		SelfCheckPeriod: 1000, GracePeriod: 10_000, ReadConsistency: protocol.Relaxed,
		AttachConsistency: protocol.Strict,
		CountersMode:      protocol.CountersAggregated, MaxSessions: 1_000_000, MaxSemaphores: 1_000_000,
		MaxBytes: protocol.DefaultMaxBytes, MaxWaiters: protocol.DefaultMaxWaiters,
		MaxWatchers: protocol.DefaultMaxWatchers,
	}
}

// apply applies commands, and checks the invariants.
func (x *scriptRunner) apply(commands []byte) {
	x.t.Helper()
	x.index++
	x.seq++
	entry := AppendHeader(nil,
		Header{Format: 1, Epoch: x.epoch, Seq: x.seq, LogTime: x.time, Wall: 1_700_000_000_000 + x.time})
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
		x.sessions[name] = &scriptSession{id: protocol.MakeSessionID(0, scriptBuckets-1, x.remoteCount),
			epoch: 1, node: 1, seq: new(uint64)}
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
		u, ok := x.m.Nodes().Usage(node)
		if !ok {
			return "none\n"
		}
		var refused [quotas]uint64
		x.m.Metrics().Refusals(func(id uint64, n [quotas]uint64) bool {
			if id == node {
				refused = n
			}
			return id != node
		})
		var b strings.Builder
		for q, name := range []string{"sessions", "semaphores", "bytes", "waiters"} {
			fmt.Fprintf(&b, "%s %d of %d, refused %d\n", name, u.Used[q], u.Limit[q], refused[q])
		}
		return b.String()
	case "process", "processes", "describe", "history", "list", "sessions", "objects", "ratelimits",
		"stream", "remotes", "node", "counters", "busiest":
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
