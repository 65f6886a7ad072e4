package shard

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server/servertest/seeds"
)

// FuzzApply applies arbitrary entries to a busy machine: nothing may panic, every invariant must
// hold, and the state must survive a snapshot. The input is a list of entries, each with its length
// before it (2 bytes, big-endian).
func FuzzApply(f *testing.F) {
	for seed := range uint64(4) {
		x := newChurn(seed, New(1))
		var in []byte
		for range 20 {
			in = appendFuzzEntry(in, x.step())
		}
		f.Add(in)
	}
	f.Add(appendFuzzEntry(nil, nil))
	f.Add(appendFuzzEntry(nil, []byte{FormatVersion + 1}))
	f.Fuzz(func(t *testing.T, in []byte) {
		m := New(1)
		x := newChurn(1, m)
		for range 150 {
			x.step()
		}
		index := x.index
		var out Events
		for len(in) > 2 {
			n := min(int(binary.BigEndian.Uint16(in)), len(in)-2)
			entry := bytes.Clone(in[2 : 2+n])
			in = in[2+n:]
			index++
			out.Reset()
			m.Apply(index, entry, &out)
			for i := range entry {
				entry[i] = 0xdb
			}
			checkEvents(t, &out)
		}
		if err := m.Check(); err != nil {
			t.Fatal(err)
		}
		readEverything(t, m)
		var b bytes.Buffer
		if err := m.BeginSnapshot().WriteTo(&b, &sync.Mutex{}); err != nil {
			t.Fatal(err)
		}
		if _, err := Restore(&b); err != nil {
			t.Fatal(err)
		}
	})
}

func appendFuzzEntry(in, entry []byte) []byte {
	in = binary.BigEndian.AppendUint16(in, uint16(len(entry)))
	return append(in, entry...)
}

// checkEvents holds what can be said about any events: one reply for each command, in order, and
// none for a session after its end.
func checkEvents(t *testing.T, out *Events) {
	next := 0
	ended := map[uint64]bool{}
	for i := range out.List {
		e := &out.List[i]
		switch e.Kind {
		case EventReply:
			if e.Command != next {
				t.Fatalf("reply to command %d, expected one to %d", e.Command, next)
			}
			next++
			if e.Status == protocol.StatusOK && e.Text != "" || e.Status != protocol.StatusOK && e.Text == "" {
				t.Fatalf("reply %v with text %q", e.Status, e.Text)
			}
		case EventSessionEnded:
			ended[e.Session] = true
		case EventAcquireResult, EventLeaseLost, EventSessionDetached:
			if ended[e.Session] {
				t.Fatalf("event %d for session %x after its end", e.Kind, e.Session)
			}
		}
	}
}

// readEverything walks all reads page by page, and holds that pages neither lose nor repeat
// anything.
func readEverything(t *testing.T, m *Machine) {
	for id, n := range m.nodes {
		list := protocol.List{Node: id, Limit: 3}
		count := 0
		var last []byte
		for more := true; more; more = len(list.Cursor) > 0 {
			var r protocol.ListReply
			if err := m.Semaphores().List(&list, &r); err != nil {
				t.Fatal(err)
			}
			for _, s := range r.Semaphores {
				if count > 0 && bytes.Compare(s.Name, last) <= 0 {
					t.Fatalf("%q is listed after %q", s.Name, last)
				}
				last = s.Name
				count++
				describeWhole(t, m, id, &s)
			}
			list.Cursor = r.Cursor
		}
		serving := 0
		m.semaphores.names(n, nil, func(s *semaphore) bool {
			if s.bucket.state == bucketActive {
				serving++
			}
			return true
		})
		if count != serving {
			t.Fatalf("list has %d semaphores of %d", count, serving)
		}
		count = 0
		sessions := protocol.SessionList{Node: id, Limit: 2}
		for more := true; more; more = len(sessions.Cursor) > 0 {
			var r protocol.SessionListReply
			if err := m.Sessions().List(&sessions, &r); err != nil {
				t.Fatal(err)
			}
			count += len(r.Sessions)
			sessions.Cursor = r.Cursor
		}
		alive := 0
		n.homeSessions.All(func(s *homeSession) bool {
			if m.alive(s.sessionRecord) && m.atHome(s.sessionRecord) {
				alive++
			}
			return true
		})
		if count != alive {
			t.Fatalf("list has %d sessions of %d", count, alive)
		}
		streamWhole(t, m, n, serving)
	}
}

func describeWhole(t *testing.T, m *Machine, node uint64, it *protocol.ListItem) {
	req := protocol.Describe{Node: node, Name: it.Name, Limit: 2, Flags: protocol.WithOwners | protocol.WithWaiters}
	var used, owners, waiters, last uint64
	for more := true; more; more = len(req.Cursor) > 0 {
		var r protocol.DescribeReply
		if err := m.Semaphores().Describe(&req, &r); err != nil {
			t.Fatal(err)
		}
		for _, o := range r.Owners {
			if o.OrderID <= last {
				t.Fatal("owners out of order")
			}
			last = o.OrderID
			used += o.Count
			owners++
		}
		for _, w := range r.Waiters {
			if w.OrderID <= last {
				t.Fatal("waiters out of order")
			}
			last = w.OrderID
			waiters++
		}
		req.Cursor = r.Cursor
	}
	if used != it.Used || owners != it.NumOwners || waiters != it.NumWaiters {
		t.Fatalf("describe of %q has used %d, %d owners, %d waiters; list says %+v",
			it.Name, used, owners, waiters, it)
	}
}

func streamWhole(t *testing.T, m *Machine, n *node, serving int) {
	for _, size := range []int{1, 100, 0} {
		semaphores, owners := 0, 0
		var cursor []byte
		for pages := 0; ; pages++ {
			var s protocol.Snapshot
			next, err := m.Semaphores().StreamSnapshot(n.id, nil, true, cursor, size, &s)
			if err != nil {
				t.Fatal(err)
			}
			if s.First != (pages == 0) || s.Last != (next == nil) {
				t.Fatalf("page %d: first %v last %v", pages, s.First, s.Last)
			}
			for _, it := range s.Semaphores {
				owners += len(it.Owners)
				semaphores++
			}
			if cursor = next; cursor == nil {
				break
			}
			if pages > 100_000 {
				t.Fatal("stream does not end")
			}
		}
		want := 0
		m.semaphores.names(n, nil, func(s *semaphore) bool {
			if s.bucket.state == bucketActive {
				want += s.owners.n
			}
			return true
		})
		if owners != want || semaphores < serving {
			t.Fatalf("stream has %d owners of %d, %d semaphores of %d", owners, want, semaphores, serving)
		}
	}
}

// FuzzRestore: any bytes are an error or a machine that can go on. Chunks get their checksums
// mended, so that the fuzzer reaches the records.
func FuzzRestore(f *testing.F) {
	for seed := range uint64(3) {
		x := newChurn(seed, New(1))
		for range 100 {
			x.step()
		}
		var b bytes.Buffer
		if err := x.m.BeginSnapshot().WriteTo(&b, &sync.Mutex{}); err != nil {
			f.Fatal(err)
		}
		f.Add(b.Bytes(), true)
		f.Add(b.Bytes()[:b.Len()/2], false)
	}
	f.Fuzz(func(t *testing.T, in []byte, mend bool) {
		if mend && len(in) > introLen+8 {
			var b bytes.Buffer
			b.Write(snapshotIntro(FormatVersion))
			if err := writeChunks(&b, in[introLen+8:]); err != nil {
				t.Fatal(err)
			}
			in = b.Bytes()
		}
		s, err := readSnapshot(bytes.NewReader(in))
		if err != nil {
			return
		}
		m := s.m // whatever its digest says: a machine of odd records must not panic either
		var out Events
		x := &churn{m: m}
		m.Apply(m.applied+1, x.entry(), &out)
		m.Digest()
	})
}

// FuzzImport imports arbitrary chunks into a busy machine, activates what came of them, and goes
// on: nothing may panic, and the invariants must hold whatever the chunks say. Their hashes get
// mended, so that the fuzzer reaches the records. The input is a list of chunks, each with its
// length before it.
func FuzzImport(f *testing.F) {
	run := BucketsBody{Total: churnBuckets, Count: churnBuckets/2 - 1, Epoch: 7}
	for seed := range uint64(3) {
		x := newChurn(seed, New(1))
		for range 150 {
			x.step()
		}
		freezeWhole(f, x, &run)
		var in []byte
		for cursor := []byte(nil); ; {
			part, next, err := x.m.Buckets().Export(run.First, run.Count, run.Epoch, cursor, 2000)
			if err != nil {
				f.Fatal(err)
			}
			in = appendFuzzEntry(in, part)
			if cursor = next; next == nil {
				break
			}
		}
		f.Add(in, seed)
	}
	f.Fuzz(func(t *testing.T, in []byte, seed uint64) {
		var parts [][]byte
		for len(in) > 2 {
			n := min(int(binary.BigEndian.Uint16(in)), len(in)-2)
			parts = append(parts, in[2:2+n])
			in = in[2+n:]
		}
		importAnything(t, parts, seed, run)
	})
}

// importAnything reports whether the import was complete in the end.
func importAnything(t *testing.T, parts [][]byte, seed uint64, run BucketsBody) (complete bool) {
	target := New(2)
	x := newChurn(seed%8, target)
	for range 60 {
		x.step()
	}
	var out Events
	apply := func(kind CommandKind, body []byte) {
		x.index++
		out.Reset()
		h := AppendHeader(nil, Header{Format: FormatVersion, Epoch: target.Epoch(), LogTime: target.LogTime() + 10})
		target.Apply(x.index, AppendCommand(h, Command{Kind: kind, Body: body}), &out)
		checkEvents(t, &out)
		if err := target.Check(); err != nil {
			t.Fatal(err)
		}
	}
	// The buckets are this machine's at first; they leave, and come back as the chunks say.
	leaves := run
	leaves.Epoch = 6
	freezeWhole(t, x, &leaves)
	apply(CmdDropBuckets, AppendBuckets(nil, leaves))
	for target.clearing.active {
		apply(CmdRemoteEnded, AppendRemoteEnded(nil, RemoteEndedBody{}))
	}
	for _, part := range parts {
		part = bytes.Clone(part)
		if len(part) > 8 {
			part = binary.BigEndian.AppendUint64(part[:len(part)-8], hash(chunkSeed, part[:len(part)-8]))
		}
		apply(CmdImport, AppendImport(nil, ImportBody{run, part}))
		for i := range part {
			part[i] = 0xdb // nothing of it may be kept
		}
	}
	apply(CmdActivate, AppendBuckets(nil, run))
	complete = out.List[0].Status == protocol.StatusOK
	for range 30 {
		x.step()
	}
	if err := target.Check(); err != nil {
		t.Fatal(err)
	}
	readEverything(t, target)
	var b bytes.Buffer
	if err := target.BeginSnapshot().WriteTo(&b, &sync.Mutex{}); err != nil {
		t.Fatal(err)
	}
	if _, err := Restore(&b); err != nil {
		t.Fatal(err)
	}
	return complete
}

// TestImportOfDamagedChunks is the fuzz test with bytes changed at random.
func TestImportOfDamagedChunks(t *testing.T) {
	run := BucketsBody{Total: churnBuckets, Count: churnBuckets/2 - 1, Epoch: 7}
	taken := 0
	for seed := range seeds.Of(t, 40, 150) {
		r := rand.New(rand.NewPCG(seed, 5))
		x := newChurn(seed%3, New(1))
		for range 150 {
			x.step()
		}
		freezeWhole(t, x, &run)
		var parts [][]byte
		for cursor := []byte(nil); ; {
			part, next, err := x.m.Buckets().Export(run.First, run.Count, run.Epoch, cursor, 2000)
			if err != nil {
				t.Fatal(err)
			}
			for range r.IntN(4) {
				at := r.IntN(len(part))
				part = slices.Concat(part[:at], [][]byte{{byte(r.IntN(256))}, {part[at], 0}, nil}[r.IntN(3)],
					part[at+1:])
			}
			parts = append(parts, part)
			if cursor = next; next == nil {
				break
			}
		}
		if importAnything(t, parts, seed, run) {
			taken++
		}
	}
	if taken < 5 {
		t.Errorf("only %d imports were complete", taken)
	}
}

// freezeWhole freezes a run as soon as nothing is left over.
func freezeWhole(t testing.TB, x *churn, run *BucketsBody) {
	var out Events
	for range 1000 {
		x.index++
		out.Reset()
		h := AppendHeader(nil, Header{Format: FormatVersion, Epoch: x.m.Epoch(), LogTime: x.m.LogTime()})
		x.m.Apply(x.index, AppendCommand(h, Command{Kind: CmdFreeze, Body: AppendBuckets(nil, *run)}), &out)
		for _, e := range out.List {
			if e.Kind == EventBucketsFrozen {
				return
			}
		}
	}
	t.Fatalf("not frozen: %+v", out.List)
}
