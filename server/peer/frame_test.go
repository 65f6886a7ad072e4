package peer

import (
	"bytes"
	"errors"
	"io"
	"runtime"
	"testing"
	"testing/iotest"

	"github.com/lni/dragonboat/v4/config"
	"github.com/lni/dragonboat/v4/raftio"
	"github.com/lni/dragonboat/v4/raftpb"
	"github.com/signalbox-dev/signalbox/server/servertest/await"
	"github.com/signalbox-dev/signalbox/server/servertest/form"
	"github.com/signalbox-dev/signalbox/server/servertest/memorynet"
)

func TestFrames(t *testing.T) {
	var b []byte
	payloads := [][]byte{nil, []byte("x"), bytes.Repeat([]byte("long"), 1<<19)}
	for i, p := range payloads {
		b = appendFrame(b, frameMessage, byte(i), p[:len(p)/2], p[len(p)/2:])
	}
	for name, r := range map[string]io.Reader{"whole": bytes.NewReader(b), "in halves": iotest.HalfReader(bytes.NewReader(b))} {
		f := frameReader{r: r, limits: limitsOf(purposeCalls, true, 8<<20)}
		for i, p := range payloads {
			kind, arg, got, err := f.next(make([]byte, 0, 2))
			if err != nil || kind != frameMessage || int(arg) != i || !bytes.Equal(got, p) {
				t.Fatalf("%s: frame %d is %d, %d, %d bytes, %v", name, i, kind, arg, len(got), err)
			}
		}
		if _, _, _, err := f.next(nil); err != io.EOF {
			t.Errorf("%s: the end is %v", name, err)
		}
	}
	// Every single bit counts.
	b = appendFrame(nil, frameMessage, 1, nil, []byte("payload"))
	for i := range len(b) * 8 {
		bad := bytes.Clone(b)
		bad[i/8] ^= 1 << (i % 8)
		f := frameReader{r: bytes.NewReader(bad), limits: limitsOf(purposeCalls, true, 8<<20)}
		if _, _, _, err := f.next(nil); err == nil {
			t.Errorf("bit %d is not missed", i)
		}
	}
}

// TestAnnouncedBytesAreNotAllocated: a header that announces much costs nothing until it comes.
func TestAnnouncedBytesAreNotAllocated(t *testing.T) {
	if form.Race {
		t.Skip("the race detector allocates")
	}
	b := appendFrame(nil, frameBatch, 0, nil, make([]byte, maxRaftFrame))[:frameHeader+10]
	f := frameReader{r: bytes.NewReader(b), limits: limitsOf(purposeRaft, true, 0)}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if _, _, _, err := f.next(nil); err != io.ErrUnexpectedEOF {
		t.Fatal(err)
	}
	runtime.ReadMemStats(&after)
	got := after.TotalAlloc - before.TotalAlloc
	if got > 4*readChunk {
		t.Errorf("%d bytes are allocated", got)
	}
}

func TestFramesMustBeExpected(t *testing.T) {
	for _, p := range []purpose{purposeRaft, purposeSnapshot, purposeCalls} {
		for kind := range byte(12) {
			for _, byDialer := range []bool{true, false} {
				f := frameReader{r: bytes.NewReader(appendFrame(nil, kind, 0, nil, nil)), limits: limitsOf(p, byDialer, 10)}
				_, _, _, err := f.next(nil)
				want := (kind == framePing || kind == framePong) && p != purposeSnapshot ||
					p == purposeRaft && byDialer && kind == frameBatch ||
					p == purposeSnapshot && (byDialer && kind == frameChunk || !byDialer && kind == frameChunkReply) ||
					p == purposeCalls && (byDialer &&
						(kind == frameMessage || kind == frameCall || kind == frameCancel) || !byDialer &&
						kind == frameReply)
				if want != (err == nil) || err != nil && !errors.Is(err, errFrame) {
					t.Errorf("%v, by dialer %v, type %d: %v", p, byDialer, kind, err)
				}
			}
		}
	}
}

func testBatch(from string) raftpb.MessageBatch {
	return raftpb.MessageBatch{DeploymentId: 1, BinVer: raftio.TransportBinVersion, SourceAddress: from, Requests: []raftpb.Message{
		{Type: raftpb.Replicate, To: 1, From: 2, ShardID: 3, Term: 4, LogIndex: 1 << 40, Entries: []raftpb.Entry{
			{Term: 4, Index: 5, Cmd: []byte("one")}, {Term: 4, Index: 6, Cmd: bytes.Repeat([]byte("x"), 300)}}},
		{Type: raftpb.Heartbeat, To: 1, From: 2, ShardID: 3, Term: 4},
	}}
}

// endless makes the engine's decoder count messages for ever: behind the first message stands one
// whose length leads back to its own start.
var endless = []byte{0x0a, 0x00, 0x0a, 0xf5, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01}

func TestMalformedBatches(t *testing.T) {
	good := testBatch("a:1")
	b := raftpb.MustMarshal(&good)
	if err := checkBatch(b); err != nil {
		t.Fatal(err)
	}
	for i := range b {
		var got raftpb.MessageBatch
		if checkBatch(b[:i]) == nil {
			_ = got.Unmarshal(b[:i]) // returns
		}
	}
	for name, bad := range map[string][]byte{
		"endless":           endless,
		"a group":           {0x0b},
		"no tag":            {0x00, 0x00},
		"message no bytes":  {0x08, 0x00},
		"beyond the end":    {0x0a, 0x05, 0x00},
		"entry no bytes":    {0x0a, 0x02, 0x58, 0x01},
		"a long varint":     {0x10, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01},
		"a long address":    append([]byte{0x1a, 0x80, 0x02}, make([]byte, 256)...),
		"too many messages": bytes.Repeat([]byte{0x0a, 0x00}, 4<<20),
		"too many entries":  append([]byte{0x0a, 0x80, 0x80, 0x80, 0x04}, bytes.Repeat([]byte{0x5a, 0x00}, 4<<20)...),
	} {
		if err := checkBatch(bad); !errors.Is(err, errFrame) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestMalformedFramesClose: what a peer may send that knows the token, and what becomes of its
// connection.
func TestMalformedFramesClose(t *testing.T) {
	t.Parallel()
	n := memorynet.New()
	a := startTransport(t, memoryConfig(n, "a:1"), nil)
	b := startTransport(t, memoryConfig(n, "b:1"), handlers(nil, nil))
	batches := make(chan raftpb.MessageBatch, 10)
	tr := b.RaftTransport().Create(config.NodeHostConfig{RaftAddress: "b:1"}, func(batch raftpb.MessageBatch) {
		if batch.DeploymentId == 666 {
			panic("inconsistent target")
		}
		batches <- batch
	}, func(c raftpb.Chunk) bool {
		if c.ShardID == 666 {
			panic("no space")
		}
		return c.ShardID != 2
	})
	if err := tr.Start(); err != nil {
		t.Fatal(err)
	}
	batch := func(change func(*raftpb.MessageBatch)) []byte {
		x := testBatch("a:1")
		change(&x)
		return appendFrame(nil, frameBatch, 0, nil, raftpb.MustMarshal(&x))
	}
	broken := appendFrame(nil, frameBatch, 0, nil, []byte{0x10, 0x01})
	broken[8] ^= 1
	for _, c := range []struct {
		name    string
		purpose purpose
		bytes   []byte
	}{
		{"checksum", purposeRaft, broken},
		{"length", purposeRaft, []byte{0xff, 0xff, 0xff, 0xff, frameBatch, 0, 0, 0, 0, 0, 0, 0}},
		{"type of another purpose", purposeRaft, appendFrame(nil, frameCall, 1, make([]byte, 16), nil)},
		{"type of nothing", purposeCalls, appendFrame(nil, 200, 0, nil, nil)},
		{"endless batch", purposeRaft, appendFrame(nil, frameBatch, 0, nil, endless)},
		{"foreign sender", purposeRaft, batch(func(x *raftpb.MessageBatch) { x.SourceAddress = "c:1" })},
		{"for nobody", purposeRaft, batch(func(x *raftpb.MessageBatch) { x.Requests[1].To = 0 })},
		{"snapshot outside its place", purposeRaft, batch(func(x *raftpb.MessageBatch) { x.Requests[0].Type = raftpb.InstallSnapshot })},
		{"the engine's own affair", purposeRaft, batch(func(x *raftpb.MessageBatch) { x.Requests[0].Type = raftpb.LocalTick })},
		{"negative type", purposeRaft, batch(func(x *raftpb.MessageBatch) { x.Requests[0].Type = -1 })},
		{"chunk of garbage", purposeSnapshot, appendFrame(nil, frameChunk, 0, nil, []byte{0xff})},
		{"short call", purposeCalls, appendFrame(nil, frameCall, echo, nil, make([]byte, 15))},
		{"engine panics", purposeRaft, batch(func(x *raftpb.MessageBatch) { x.DeploymentId = 666 })},
	} {
		before := b.Stats().BadFrames.Load() + b.Stats().Panics.Load()
		nc, err := a.dial(testContext(t), "b:1", c.purpose)
		if err != nil {
			t.Fatal(err)
		}
		_ = nc.write(c.bytes)
		if _, _, _, err := nc.next(nil); err == nil {
			t.Errorf("%s: it is answered", c.name)
		}
		nc.closeDialed()
		await.True(t, c.name+": the connection to be closed", func() bool { return b.Stats().Inbound.Load() == 0 })
		if s := b.Stats(); s.BadFrames.Load()+s.Panics.Load() != before+1 {
			t.Errorf("%s: not counted: %+v", c.name, s)
		}
	}
	if len(batches) != 0 {
		t.Error("a hostile batch reached the engine")
	}

	// What is right reaches it, whole, in frames of bounded size.
	out := a.RaftTransport().Create(config.NodeHostConfig{RaftAddress: "a:1"}, nil, nil)
	conn, err := out.GetConnection(testContext(t), "b:1")
	if err != nil {
		t.Fatal(err)
	}
	many := testBatch("a:1")
	for range batchMessages {
		many.Requests = append(many.Requests, many.Requests[1])
	}
	if err := conn.SendMessageBatch(many); err != nil {
		t.Fatal(err)
	}
	got := append(receive(t, batches, "the first part").Requests, receive(t, batches, "the second part").Requests...)
	if len(got) != len(many.Requests) || string(got[0].Entries[0].Cmd) != "one" || len(got[0].Entries[1].Cmd) != 300 {
		t.Errorf("%d of %d messages came", len(got), len(many.Requests))
	}
	again, err := out.GetConnection(testContext(t), "b:1")
	if err != nil {
		t.Fatal(err)
	}
	if n := b.Stats().Inbound.Load(); n != 1 {
		t.Errorf("%d connections for the raft messages of one peer", n)
	}
	conn.Close()
	if err := again.SendMessageBatch(testBatch("a:1")); err != nil {
		t.Errorf("the connection closed with its first user: %v", err)
	}
	again.Close()
	await.True(t, "the shared connection to close with its last user", func() bool { return b.Stats().Inbound.Load() == 0 })

	for shard, ok := range map[uint64]bool{1: true, 2: false, 666: false} {
		s, err := out.GetSnapshotConnection(testContext(t), "b:1")
		if err != nil {
			t.Fatal(err)
		}
		if err := s.SendChunk(raftpb.Chunk{ShardID: shard, Data: make([]byte, 2<<20)}); ok != (err == nil) {
			t.Errorf("chunk of shard %d: %v", shard, err)
		}
		s.Close()
	}
	_ = tr.Close()
	before := b.Stats().BatchesDropped.Load()
	last, err := out.GetConnection(testContext(t), "b:1")
	if err != nil {
		t.Fatal(err)
	}
	defer last.Close()
	_ = last.SendMessageBatch(testBatch("a:1"))
	await.True(t, "a batch for nobody to be dropped", func() bool { return b.Stats().BatchesDropped.Load() > before })
}
