package shard

import (
	"fmt"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/signalbox-dev/signalbox/protocol"
)

// scriptShard is what belongs to one shard of a story with several.
type scriptShard struct {
	m                  *Machine
	index, time, epoch uint64
}

// switchShard goes to another shard. A new one has the node, and no buckets.
func (x *scriptRunner) switchShard(name string, at uint64) {
	if x.shards == nil {
		x.shards, x.current = map[string]*scriptShard{}, "x"
	}
	x.shards[x.current] = &scriptShard{m: x.m, index: x.index, time: x.time, epoch: x.epoch}
	s := x.shards[name]
	if s == nil {
		s = &scriptShard{m: New(uint64(8 + len(x.shards))), time: at, epoch: 1 << 16}
	}
	x.current, x.m, x.index, x.time, x.epoch = name, s.m, s.index, s.time, s.epoch
	if s.index == 0 {
		x.apply(AppendCommand(nil, Command{Kind: CmdTakeOver}))
		x.apply(AppendCommand(nil, Command{Kind: CmdNodePut,
			Body: AppendNodePut(nil, NodePutBody{Node: 1, Revision: 1, Config: scriptConfig()})}))
	}
}

// bucketsOf reads which buckets a line speaks of.
func (x *scriptRunner) bucketsOf(a scriptArgs) BucketsBody {
	b := BucketsBody{Total: scriptBuckets, First: uint32(a.num("first", 0)),
		Count: uint32(a.num("count", 1)), Epoch: a.num("epoch", 2)}
	if name := a.vals["of"]; name != "" {
		b.First = protocol.Bucket(a.num("node", 1), []byte(name), scriptBuckets)
	}
	if name := a.vals["process"]; name != "" {
		b.First = protocol.ProcessBucket(a.num("node", 1), []byte(name), scriptBuckets)
	}
	if name := a.vals["home"]; name != "" {
		if who := x.sessions[name]; who != nil && who.id != 0 {
			b.First = protocol.SessionBucket(who.id)
		}
	}
	return b
}

// moved serves the directives about moves.
func (x *scriptRunner) moveDirective(d *datadriven.TestData) string {
	var words []string
	for _, a := range d.CmdArgs {
		w := a.Key
		if len(a.Vals) > 0 {
			w += "=" + a.Vals[0]
		}
		words = append(words, w)
	}
	a := parseScriptArgs(strings.Join(words, " "))
	run := x.bucketsOf(a)
	switch d.Cmd {
	case "shard":
		x.switchShard(a.words[0], a.num("t", 1000))
		return ""
	case "copies":
		var b strings.Builder
		for i := run.First; i < run.First+run.Count; i++ {
			is := "unknown"
			epoch := uint64(0)
			if len(x.m.buckets) > 0 {
				c := &x.m.buckets[i]
				is, epoch = [...]string{"absent", "active", "frozen", "imported", "importing", "dropping"}[c.state],
					c.highestEpoch()
			}
			fmt.Fprintf(&b, "%s, epoch %d\n", is, epoch)
		}
		return b.String()
	}
	x.shards[x.current] = &scriptShard{m: x.m, index: x.index, time: x.time, epoch: x.epoch}
	from := x.shards[a.vals["from"]].m
	cursor, complete, ok := x.m.Buckets().Imported(run.First, run.Count, run.Epoch)
	if (complete || !ok) && !a.has("anyway") {
		return fmt.Sprintf("complete %v, possible %v\n", complete, ok)
	}
	if a.has("restart") {
		cursor = nil
	}
	stop := int(a.num("stop", 1<<30))
	for n := 0; n < stop; {
		part, next, err := from.Buckets().Export(run.First, run.Count, run.Epoch, cursor, int(a.num("bytes", 0)))
		if err != nil {
			return err.Error() + "\n"
		}
		x.lines, x.starts = []string{"import"}, nil
		x.apply(AppendCommand(nil, Command{Kind: CmdImport, Body: AppendImport(nil, ImportBody{run, part})}))
		n++
		sent := x.output()
		if cursor = next; x.out.List[0].Status != protocol.StatusOK || next == nil || n == stop {
			return strings.Replace(sent, "import -> ", fmt.Sprintf("%d chunks, the last -> ", n), 1)
		}
	}
	return ""
}

// TestStepsNeverPanic sends every step to machines that never heard of any bucket, and nonsense to
// all.
func TestStepsNeverPanic(t *testing.T) {
	for _, kind := range []CommandKind{CmdFreeze, CmdImport, CmdActivate, CmdDropBuckets} {
		for _, body := range [][]byte{
			nil, {0}, {0, 1}, AppendBuckets(nil, BucketsBody{}), AppendBuckets(nil, BucketsBody{Total: 4, Count: 4}),
			AppendBuckets(nil, BucketsBody{Total: 4, Count: 4, Epoch: 1}),
			AppendBuckets(nil, BucketsBody{Total: 4, First: 4, Epoch: 1}),
			AppendBuckets(nil, BucketsBody{Tier: 15, Total: 1 << 16, First: 1<<16 - 1, Count: 1, Epoch: 1<<64 - 1}),
			append(AppendBuckets(nil, BucketsBody{Total: 4, Count: 4, Epoch: 1}), 1, 2, 3, 4, 5, 6, 7, 8, 9, 10),
		} {
			m := New(1)
			var out Events
			for range 2 {
				m.Apply(1, AppendCommand(AppendHeader(nil, Header{Format: 1}), Command{Kind: kind, Body: body}), &out)
			}
			if err := m.Check(); err != nil {
				t.Errorf("%d %x: %v", kind, body, err)
			}
			if len(out.List) == 0 || out.List[0].Kind != EventReply {
				t.Errorf("%d %x: %+v", kind, body, out.List)
			}
			if _, _, err := m.Buckets().Export(0, 1, 1, []byte{1}, 0); err == nil {
				t.Error("exported without a freeze")
			}
		}
	}
}
