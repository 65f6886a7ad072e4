package shard

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"testing"
	"unsafe"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/protocol/varint"
)

// TestPlainUse pins the bytes of semaphores that are used without options: requests in the log,
// records of snapshots and of chunks, answers to reads, and how large records are in memory.
// Options must not change any of them. Regenerate with -update and read the diff.
func TestPlainUse(t *testing.T) {
	const golden = "testdata/plain.golden"
	got := plainUse(t)
	if flag.Lookup("rewrite").Value.String() == "true" {
		if err := os.WriteFile(golden, got, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	was, is := bytes.Split(want, []byte("\n")), bytes.Split(got, []byte("\n"))
	for i := range min(len(was), len(is)) {
		if !bytes.Equal(was[i], is[i]) {
			t.Fatalf("line %d is\n%s, want\n%s", i+1, is[i], was[i])
		}
	}
	if len(was) != len(is) {
		t.Fatalf("%d lines, want %d", len(is), len(was))
	}
}

// plainUse has a semaphore with owners and waiters, one that was created and never used, and an
// ephemeral one.
func plainUse(t *testing.T) []byte {
	x := newScriptRunner(t)
	var b bytes.Buffer
	apply := func(lines ...string) {
		var commands []byte
		x.lines, x.starts = nil, map[int]string{}
		for _, line := range lines {
			c := x.command(line)
			if c.Kind != CmdSessionStart {
				fmt.Fprintf(&b, "%s: %x\n", line, c.Body)
			}
			commands = AppendCommand(commands, c)
			x.lines = append(x.lines, line)
		}
		x.apply(commands)
		x.output()
	}
	apply("start a desc=worker", "start b", "start c")
	apply("create a pool limit=4 data=v1", "create b idle limit=1",
		"acquire a pool count=3 data=x", "acquire b pool count=4 timeout=5000", "acquire c pool",
		"acquire a lock ephemeral count=MAX", "acquire b lock ephemeral timeout=0")
	x.time += 100
	apply("acquire a pool count=2 data=y", "resize c idle limit=2", "update c idle data=w", "release c pool order=9")

	records := recordReader{buf: snapshotRecords(t, x.m)}
	for len(records.buf) > records.pos {
		kind, fields, err := records.next()
		if err != nil {
			t.Fatal(err)
		}
		if kind == recordSemaphore || kind == recordEntry {
			fmt.Fprintf(&b, "record of kind %d: %x\n", kind, fields)
		}
	}
	run := BucketsBody{Total: scriptBuckets, Count: scriptBuckets - 1, Epoch: 2}
	x.apply(AppendCommand(nil, Command{Kind: CmdFreeze, Body: AppendBuckets(nil, run)}))
	part, next, err := x.m.Buckets().Export(run.First, run.Count, run.Epoch, nil, 0)
	if err != nil || next != nil {
		t.Fatal(err, next)
	}
	chunk, ok := readChunk(part, &run)
	if !ok {
		t.Fatal("the chunk cannot be read")
	}
	for r := (varint.Reader{Rest: chunk.records}); len(r.Rest) > 0; {
		if kind, fields := r.Byte(), r.Bytes(varint.NoLimit); kind >= chunkSemaphore && kind <= chunkEntry {
			fmt.Fprintf(&b, "record of kind %d of a chunk: %x\n", kind, fields)
		}
	}
	x.apply(AppendCommand(nil, Command{Kind: CmdActivate,
		Body: AppendBuckets(nil, BucketsBody{Total: run.Total, Count: run.Count, Epoch: 3})}))
	for _, name := range []string{"pool", "idle", "lock"} {
		var d protocol.DescribeReply
		if err := x.m.Semaphores().Describe(&protocol.Describe{Node: 1, Name: []byte(name),
			Flags: protocol.WithOwners | protocol.WithWaiters}, &d); err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&b, "describe %s: %x\n", name, protocol.AppendBody(nil, &d))
	}
	usage, _ := x.m.Nodes().Usage(1)
	fmt.Fprintf(&b, "bytes of the quota: %d\n", usage.Used[QuotaBytes])
	for _, size := range []struct {
		of    string
		bytes uintptr
	}{
		{"a semaphore", unsafe.Sizeof(semaphore{})}, {"its extras", unsafe.Sizeof(semaphoreExtras{})},
		{"an entry", unsafe.Sizeof(entry{})},
	} {
		fmt.Fprintf(&b, "memory of %s: %d\n", size.of, size.bytes)
	}
	return b.Bytes()
}

// snapshotRecords are the records of a snapshot, without the chunks around them.
func snapshotRecords(t testing.TB, m *Machine) (records []byte) {
	b := snapshotOf(t, m)[introLen:]
	for len(b) > 0 {
		n := int(b[0])<<24 | int(b[1])<<16 | int(b[2])<<8 | int(b[3])
		records = append(records, b[8:8+n]...)
		b = b[8+n:]
	}
	return records
}
