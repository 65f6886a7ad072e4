package shard

import (
	"cmp"
	"errors"
	"maps"
	"reflect"
	"slices"
	"testing"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard/fieldtest"
)

// notMoved are the fields that do not move with a bucket. A new field fails TestEveryFieldMoves
// until it is here, or in a record of a chunk.
var notMoved = map[string]string{
	"bucket.number":      "its place",
	"bucket.state":       "of the move",
	"bucket.epoch":       "of the move",
	"bucket.moveEpoch":   "of the move",
	"bucket.logBase":     "when it was activated in this shard",
	"bucket.semaphores":  "records of their own",
	"bucket.newestCount": "counted again",
	"bucket.objects":     "records of their own",
	"bucket.timers":      "follows from their timers",
	"bucket.timer":       "follows from timers",

	"homeSession.sessionRecord": "walked by itself",
	"homeSession.generation":    "take-overs of the shard: a freeze settles what they left open",

	"sessionRecord.id":          "what it is found by, in the shard and in the copy",
	"sessionRecord.node":        "a link, by id",
	"sessionRecord.home":        "the session itself",
	"sessionRecord.timer":       "of a detached session, see expiry; or a remote record is kept from the import on",
	"sessionRecord.lastSeen":    "the log time of the import: log times of shards differ",
	"sessionRecord.endReason":   "for metrics",
	"sessionRecord.snapMark":    "of the process",
	"sessionRecord.ended":       "what is gone is released before a freeze, or at the target",
	"sessionRecord.detached":    "the home says it again when it is asked for the first time",
	"sessionUse.ending":         "the histories of a moved bucket do without",
	"sessionUse.entries":        "follows from the entries",
	"sessionUse.waits":          "follows from the entries",
	"sessionUse.place":          "place in a ranking",
	"sessionUse.holdings":       "follows from the hosted objects",
	"sessionUse.chargedAnswers": "counted again",
	"answers.head":              "what is before it is forgotten",

	"semaphore.bucket":        "follows from node and name",
	"semaphore.node":          "a link, by id",
	"semaphore.used":          "follows from the owners",
	"semaphore.revision":      "a log index of the shard",
	"semaphore.owners":        "records of their own",
	"semaphoreExtras.waiters": "records of their own",
	"semaphore.deleted":       "a deleted one is in no bucket",
	"semaphore.ringAt":        "place in the ring of those made last",
	"semaphoreExtras.stuck":   "follows from its first waiter",
	"semaphoreExtras.places":  "places in the rankings",
	"semaphore.snapMark":      "of the process",
	"semaphore.serial":        "links records within one snapshot",
	"semaphore.counters":      "counters are no part of the state",
	"semaphoreExtras.rare":    "see TestQueuesMatchModel",

	"entry.links":     "shape of the trees",
	"entry.semaphore": "a link, by name",
	"entry.session":   "a link, by id",
	"entry.snapMark":  "of the process",
	"entry.began":     "for metrics",
	"timer.pos":       "place in the heap; that it is scheduled moves",

	"hostedObject.kind":         "says which record it is",
	"hostedObject.bucket":       "follows from node and name",
	"hostedObject.node":         "a link, by id",
	"hostedObject.state":        "its record, whole: see shard/process and shard/rollout",
	"hostedObject.revision":     "a log index of the shard",
	"hostedObject.timer":        "follows from the state",
	"hostedObject.snapMark":     "of the process",
	"hostedObject.chargedBytes": "counted again",
	"hostedObject.called":       "of one Apply",
	"hostedObject.deleted":      "a deleted one is in no bucket",
}

// staysInShard are the fields of a machine and of the types embedded in it, none of which is of a
// bucket alone. Of ended the part moves that is of create ids of the run.
var staysInShard = []string{
	"id", "applied", "format", "epoch", "epochAt", "logTime", "wall", "stood", "stoodAt", "limits", "work", // the shard's own
	"bucketTable", "imports", "clearing", // the table, and steps of moves
	"nodes", "nodeIndex", "dropping", "dropped", "grace", // each shard has all nodes
	"sessions", "byCreateID", // records of the run
	"ending", "orphaned", "endedRemotes", // ids that the target hears of by their homes
	"endedCreateIDs",
	"calledProcesses", "takeovers", "transferring", "deadlines", "semaphores", "selfCheck",
	"serial", "snapshot", "snapMark", "batch", "interner", "spares",
	"formerOwners", "leaseTransfers", "lost", "preemptions", // for metrics and the log
}

// exportChunks are all chunks of a frozen run, one behind the other in time.
func exportChunks(m *Machine, run *BucketsBody) (parts [][]byte, err error) {
	for cursor := []byte(nil); ; {
		part, next, err := m.Buckets().Export(run.First, run.Count, run.Epoch, cursor, 0)
		if err != nil {
			return nil, err
		}
		if parts = append(parts, part); next == nil {
			return parts, nil
		}
		cursor = next
	}
}

// importChunks is another shard with the copy of a run, which is not active.
func importChunks(from *Machine, run *BucketsBody, parts [][]byte) (*Machine, error) {
	m, index := New(9), uint64(0)
	var out Events
	apply := func(kind CommandKind, body []byte) error {
		index++
		out.Reset()
		h := AppendHeader(nil, Header{Format: FormatVersion, Epoch: 1 << 16, Seq: index, LogTime: 1_000_000})
		m.Apply(index, AppendCommand(h, Command{Kind: kind, Body: body}), &out)
		for _, e := range out.List {
			if e.Kind == EventReply && e.Status != protocol.StatusOK {
				return errors.New(e.Text)
			}
		}
		return nil
	}
	if err := apply(CmdTakeOver, nil); err != nil {
		return nil, err
	}
	if err := apply(CmdBuckets, AppendBuckets(nil, BucketsBody{Total: run.Total, First: run.Total - 1, Count: 1})); err != nil {
		return nil, err
	}
	for _, id := range slices.Sorted(maps.Keys(from.nodes)) {
		if err := apply(CmdNodePut, AppendNodePut(nil, NodePutBody{Node: id, Revision: 1, Config: from.nodes[id].config})); err != nil {
			return nil, err
		}
	}
	for _, part := range parts {
		if err := apply(CmdImport, AppendImport(nil, ImportBody{*run, part})); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// moveRecords are records of the run, one of each kind, by name: how another machine finds the same
// one, nil if it has none.
func moveRecords(m *Machine, run *BucketsBody) map[string]func(*Machine) any {
	list := map[string]func(*Machine) any{}
	record := func(id uint64) func(*Machine) any {
		return func(m *Machine) any { return m.sessions.get(id) }
	}
	for _, p := range slices.SortedFunc(m.sessions.All(), func(a, b *sessionRecord) int { return cmp.Compare(a.id, b.id) }) {
		id := p.id
		switch {
		case p.ended || p.home != nil && !run.contains(uint64(protocol.SessionBucket(id))):
		case p.home == nil:
			if p.answers.len() > 0 && p.hasReferences() {
				list["remote session record"] = record(id)
			}
		default:
			kind := "attached session"
			if !p.home.attached {
				kind = "detached session"
				list["expiry"] = func(m *Machine) any {
					if p := m.sessions.get(id); p != nil {
						return &p.timer
					}
					return (*timer)(nil)
				}
			}
			list[kind] = func(m *Machine) any {
				if p := m.sessions.get(id); p != nil {
					return p.home
				}
				return (*homeSession)(nil)
			}
			if p.answers.len() > 0 {
				list["home session record"] = record(id)
			}
		}
	}
	for i := run.First; i < run.First+run.Count; i++ {
		list["bucket"] = func(m *Machine) any { return &m.buckets[i] }
		for _, s := range slices.SortedFunc(m.semaphores.in(&m.buckets[i]), compareKeys) {
			node, name := s.node.id, s.name
			list["semaphore"] = func(m *Machine) any { return m.semaphores.lookup(&m.buckets[i], node, name) }
			entry := func(order uint64) func(*Machine) any {
				return func(m *Machine) any {
					if s := m.semaphores.lookup(&m.buckets[i], node, name); s != nil {
						for _, t := range []*treap{&s.owners, &s.waiters} {
							if e := t.seekOrder(order - 1); e != nil && e.orderID == order {
								return e
							}
						}
					}
					return (*entry)(nil)
				}
			}
			if e := s.owners.first; e != nil {
				list["owner"] = entry(e.orderID)
			}
			for e := s.waiters.first; e != nil; e = next(e, byOrder) {
				if e.timer.pos > 0 {
					list["waiter"] = entry(e.orderID)
				}
			}
		}
		for key := range m.buckets[i].objects[kindProcess] {
			list["process"] = func(m *Machine) any { return m.buckets[i].objects[kindProcess][key] }
		}
		for key := range m.buckets[i].objects[kindLimit] {
			list["limit"] = func(m *Machine) any { return m.buckets[i].objects[kindLimit][key] }
		}
		for key := range m.buckets[i].objects[kindTrack] {
			list["track"] = func(m *Machine) any { return m.buckets[i].objects[kindTrack][key] }
		}
	}
	return list
}

// TestEveryFieldMoves changes each field of each kind of record in a frozen bucket: the export
// carries it, and it is the same in the copy that another shard imports, or that is refused. A
// field that is left out of a chunk, by its writer or by its reader, is found here at once.
func TestEveryFieldMoves(t *testing.T) {
	var look func(fields reflect.Type)
	look = func(fields reflect.Type) {
		for i := range fields.NumField() {
			switch f := fields.Field(i); {
			case slices.Contains(staysInShard, f.Name):
			case f.Anonymous:
				look(f.Type)
			default:
				t.Errorf("%s.%s: say whether it moves with a bucket", fields.Name(), f.Name)
			}
		}
	}
	look(reflect.TypeFor[Machine]())
	run := BucketsBody{Total: churnBuckets, Count: churnBuckets - 2, Epoch: 7}
	laws := map[string]*fieldtest.Law{}
	ended := 0
	for seed := range uint64(4) {
		x := newChurn(seed, New(3))
		for range 300 {
			x.step()
		}
		freezeWhole(t, x, &run)
		for p := range x.m.sessions.All() { // what is forgotten is not exported
			if p.answers.head > 0 {
				p.answers = answers{list: slices.Clone(p.answers.list[p.answers.head:])}
			}
		}
		records := moveRecords(x.m, &run)
		for _, name := range slices.Sorted(maps.Keys(records)) {
			find, law := records[name], laws[name]
			if law == nil {
				law = &fieldtest.Law{Derived: maps.Clone(notMoved), Keys: map[string]bool{"answer.bucket": true}}
				laws[name] = law
			}
			switch name {
			case "owner":
				law.Derived["entry.timer"], law.Derived["entry.waiting"] = "of a waiter", "of a waiter"
			}
			var parts [][]byte // that were written last
			law.Write = func() []byte {
				var err error
				if parts, err = exportChunks(x.m, &run); err != nil {
					t.Fatal(err)
				}
				return slices.Concat(parts...)
			}
			law.Read = func([]byte) (any, error) {
				m, err := importChunks(x.m, &run, parts)
				if err != nil {
					return nil, err
				}
				if got := find(m); !reflect.ValueOf(got).IsNil() {
					return got, nil
				}
				return nil, errors.New("it has another key, or was refused")
			}
			law.Look(t, find(x.m))
		}
		parts, err := exportChunks(x.m, &run)
		if err != nil {
			t.Fatal(err)
		}
		m, err := importChunks(x.m, &run, parts)
		if err != nil {
			t.Fatal(err)
		}
		if err := m.Check(); err != nil {
			t.Error(err)
		}
		for _, k := range x.m.endedCreateIDs.Queue() {
			key, until := k.Key, k.Until
			if until >= x.m.logTime && run.contains(uint64(protocol.HomeBucket(key, run.Total))) {
				ended++
				if got := untilOf(m, key); got-m.logTime != until-x.m.logTime {
					t.Errorf("a session that ended is remembered for %d ms, want %d",
						got-m.logTime, until-x.m.logTime)
				}
			}
		}
	}
	for _, name := range []string{"bucket", "attached session", "detached session", "expiry",
		"home session record", "remote session record", "semaphore", "owner", "waiter", "process", "track"} {
		law := laws[name]
		if law == nil {
			t.Errorf("no %s was looked at", name)
			continue
		}
		for key := range law.Derived {
			if !law.Walked(key) {
				delete(law.Derived, key) // of another kind of record
			}
		}
		law.Whole(t)
	}
	if ended == 0 {
		t.Error("no session had ended: the test has lost its way")
	}
}

// untilOf is the last log time at which a create id is remembered.
func untilOf(m *Machine, key [protocol.KeyLen]byte) (until uint64) {
	for _, k := range m.endedCreateIDs.Queue() {
		if k.Key == key {
			until = k.Until
		}
	}
	return until
}
