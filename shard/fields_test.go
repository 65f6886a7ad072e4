package shard

import (
	"bytes"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"unsafe"
)

// derived are the fields of records that follow from others, or are of the process and not of the
// state. Every other field must be seen by the digest, by a snapshot and by what is restored from
// it: TestEveryFieldIsKept fails for a new field that is neither here nor in a record.
var derived = map[string]string{
	"bucketTable.buckets":         "records of their own",
	"bucketTable.copyCount":       "follows from the buckets",
	"nodeTable.nodes":             "records of their own",
	"nodeTable.nodeIndex":         "the same nodes",
	"nodeTable.dropping":          "see checkLists",
	"sessionTable.sessions":       "records of their own",
	"sessionTable.ending":         "see checkLists",
	"sessionTable.orphaned":       "see checkLists",
	"sessionTable.byCreateID":     "follows from the sessions",
	"sessionTable.endedCreateIDs": "records of their own",
	"sessionTable.endedRemotes":   "records of their own",
	"Machine.format":              "snapshots begin with it",
	"Machine.calledProcesses":     "empty between Applies",
	"Machine.epochAt":             "of the process: 0 after a restore, which is as of now",
	"clock.wall":                  "for display",
	"clock.deadlines":             "follows from the timers",
	"Machine.semaphores":          "follows from the semaphores",
	"bucketTable.highestVersion":  "an upper bound, of the process",
	"nodeTable.selfCheck":         "follows from the nodes",
	"nodeTable.grace":             "follows from the nodes",
	"Machine.serial":              "links records within one snapshot",
	"Machine.snapshot":            "of the process",
	"Machine.snapMark":            "of the process",
	"Machine.batch":               "of one Apply",
	"Machine.interner":            "of the process",
	"Machine.spares":              "of the process",
	"bucket.number":               "its place",
	"bucket.semaphores":           "records of their own",
	"bucket.newestCount":          "counted again",
	"bucket.objects":              "records of their own",
	"bucket.timers":               "follows from their timers",
	"bucket.timer":                "follows from timers",
	"node.snapMark":               "of the process",
	"node.homeSessions":           "records of their own",
	"node.remoteSessions":         "records of their own",
	"node.semaphores":             "records of their own",
	"node.semaphoreCount":         "counted again",
	"node.objects":                "records of their own",
	"node.usage":                  "counted again",
	"node.busiest":                "follows from the semaphores and sessions",
	"sessionRecord.node":          "a link, by id",
	"sessionRecord.sessionUse":    "walked by itself",
	"sessionRecord.home":          "the session itself",
	"sessionRecord.snapMark":      "of the process",
	"sessionUse.entries":          "follows from the entries",
	"sessionUse.waits":            "follows from the entries",
	"sessionUse.place":            "place in a ranking",
	"sessionUse.holdings":         "follows from the hosted objects",
	"sessionUse.chargedAnswers":   "counted again",
	"answers.head":                "what is before it is forgotten",
	"homeSession.sessionRecord":   "walked by itself",
	"remote/sessionRecord.id":     "the walk finds the record by it; the model compares ids",
	"semaphore.bucket":            "follows from node and name",
	"semaphore.node":              "a link, by id",
	"semaphore.used":              "follows from the owners",
	"semaphore.owners":            "records of their own",
	"semaphore.semaphoreExtras":   "walked by itself",
	"semaphore.deleted":           "a deleted one is in no snapshot",
	"semaphore.ringAt":            "place in the ring of those made last",
	"semaphore.snapMark":          "of the process",
	"semaphore.serial":            "links records within one snapshot",
	"semaphore.counters":          "counters are no part of the state",
	"semaphoreExtras.waiters":     "records of their own",
	"semaphoreExtras.places":      "places in the rankings",
	"semaphoreExtras.rare":        "see TestQueuesMatchModel",
	"semaphoreExtras.stuck":       "follows from its first waiter",
	"entry.began":                 "for metrics",
	"node.times":                  "for metrics",
	"node.families":               "in the sessions' records: see testdata/scripts/children.txt",
	"node.levelWaits":             "for metrics",
	"sessionRecord.endReason":     "for metrics",
	"Machine.leaseTransfers":      "for metrics",
	"Machine.lost":                "for metrics",
	"Machine.preemptions":         "for metrics",
	"Machine.formerOwners":        "for the log",
	"entry.links":                 "shape of the trees",
	"entry.semaphore":             "a link, by serial number",
	"entry.session":               "a link, by id",
	"entry.snapMark":              "of the process",
	"timer.pos":                   "place in the heap; that it is scheduled is kept",
	"hostedObject.kind":           "says which record it is",
	"hostedObject.bucket":         "follows from node and name",
	"hostedObject.node":           "a link, by id",
	"hostedObject.timer":          "follows from the state",
	"hostedObject.snapMark":       "of the process",
	"hostedObject.chargedBytes":   "counted again",
	"hostedObject.called":         "of one Apply",
	"hostedObject.deleted":        "a deleted one is in no snapshot",
	"hostedObject.state":          "see shard/process and shard/rollout",
}

// fieldCheck changes one field of a record at a time.
type fieldCheck struct {
	t       *testing.T
	m       *Machine
	plain   []byte // snapshot of m as it is
	digest  uint64
	record  string
	find    func(*Machine) reflect.Value // the same record of another machine
	changed map[string]int
	walked  map[string]bool
}

// settable is the field even if it is not exported.
func settable(v reflect.Value) reflect.Value {
	return reflect.NewAt(v.Type(), unsafe.Pointer(v.UnsafeAddr())).Elem()
}

// fieldAt is the value that a path of fields leads to.
func fieldAt(v reflect.Value, path []int) reflect.Value {
	for _, i := range path {
		v = settable(v.Field(i))
	}
	return v
}

func (c *fieldCheck) walk(name string, path []int) {
	v := fieldAt(c.find(c.m), path)
	for i := range v.NumField() {
		f := v.Type().Field(i)
		key := v.Type().Name() + "." + f.Name
		c.walked[key] = true
		if derived[key] != "" || derived[c.record+"/"+key] != "" {
			continue
		}
		if v.Type() == reflect.TypeFor[timer]() && v.FieldByName("pos").Int() == 0 {
			continue // it is not scheduled
		}
		next := append(slices.Clone(path), i)
		if f.Type.Kind() == reflect.Struct {
			c.walk(name+"."+f.Name, next)
			continue
		}
		c.change(name+"."+f.Name, next, keyFields[key])
	}
}

// change gives a field another value, and looks whether the digest, a snapshot and what is restored
// tell.
func (c *fieldCheck) change(name string, path []int, key bool) {
	f := fieldAt(c.find(c.m), path)
	was := reflect.New(f.Type()).Elem()
	was.Set(f)
	f.Set(differentValue(c.t, f))
	now := reflect.ValueOf(f.Interface())
	defer f.Set(was)
	c.changed[name]++
	if c.m.Digest() == c.digest {
		c.t.Errorf("%s: the digest does not see it", name)
	}
	b := snapshotOf(c.t, c.m)
	if bytes.Equal(b, c.plain) {
		c.t.Errorf("%s: it is not in a snapshot", name)
	}
	x, err := readBack(b)
	if err != nil || key {
		return // the value is one that cannot be, and it was noticed; or the record has another name now
	}
	if got := fieldAt(c.find(x), path); !reflect.DeepEqual(got.Interface(), now.Interface()) {
		c.t.Errorf("%s: restored as %v, was %v", name, got, now)
	}
}

// readBack restores a snapshot without a look at its digest, which would differ where a field was
// not restored. An error says that a record cannot be.
func readBack(b []byte) (*Machine, error) {
	x, err := readSnapshot(bytes.NewReader(b))
	if err != nil {
		return nil, err
	}
	return x.m, nil
}

// differentValue is a value that a field does not have.
func differentValue(t *testing.T, f reflect.Value) reflect.Value {
	t.Helper()
	v := reflect.New(f.Type()).Elem()
	v.Set(f)
	switch f.Kind() {
	case reflect.Bool:
		v.SetBool(!f.Bool())
	case reflect.Int, reflect.Int32, reflect.Int64:
		v.SetInt(f.Int() + 1)
	case reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		v.SetUint(f.Uint() + 1)
	case reflect.String:
		v.SetString(f.String() + "x")
	case reflect.Pointer:
		v.Set(reflect.New(f.Type().Elem()))
	case reflect.Array:
		for i := range v.Len() {
			v.Index(i).Set(differentValue(t, f.Index(i)))
		}
	case reflect.Slice:
		e := reflect.New(f.Type().Elem()).Elem()
		fillZeros(t, e)
		v.Set(reflect.Append(f.Slice3(0, f.Len(), f.Len()), e))
	default:
		t.Fatalf("a field of kind %v: say here how it is changed", f.Kind())
	}
	return v
}

// fillZeros makes no field of an element zero.
func fillZeros(t *testing.T, v reflect.Value) {
	t.Helper()
	if v.Kind() != reflect.Struct {
		v.Set(differentValue(t, v))
		return
	}
	for i := range v.NumField() {
		f := settable(v.Field(i))
		if f.Kind() == reflect.Struct {
			fillZeros(t, f)
		} else {
			f.Set(differentValue(t, f))
		}
	}
}

// entryAt is the entry with an order id, or the next one, which an entry under another id may have
// become.
func entryAt(s *semaphore, order uint64) *entry {
	for _, t := range []*treap{&s.owners, &s.waiters} {
		if e := t.seekOrder(order - 1); e != nil && (e.orderID == order || t == &s.waiters) {
			return e
		}
	}
	return s.owners.seekOrder(0)
}

// recordsOf are the records of a machine, one of each kind, by name.
func recordsOf(m *Machine) map[string]func(*Machine) reflect.Value {
	of := func(p any) reflect.Value { return reflect.ValueOf(p).Elem() }
	list := map[string]func(*Machine) reflect.Value{"Machine": func(m *Machine) reflect.Value { return of(m) }}
	for i := range m.buckets {
		if m.buckets[i].state == bucketActive {
			list["bucket"] = func(m *Machine) reflect.Value { return of(&m.buckets[i]) }
		}
	}
	for id := range m.nodes {
		list["node"] = func(m *Machine) reflect.Value { return of(m.nodes[id]) }
	}
	for p := range m.sessions.All() {
		id := p.id
		switch {
		case p.home != nil:
			list["sessionRecord"] = func(m *Machine) reflect.Value { return of(m.sessions.get(id)) }
			list["homeSession"] = func(m *Machine) reflect.Value { return of(m.sessions.get(id).home) }
			if p.sessionUse != &unused {
				list["sessionUse"] = func(m *Machine) reflect.Value { return of(m.sessions.get(id).sessionUse) }
			}
		case !p.ended:
			list["remote"] = func(m *Machine) reflect.Value { return of(m.sessions.get(id)) }
		}
	}
	for i := range m.buckets {
		for s := range m.semaphores.in(&m.buckets[i]) {
			node, name := s.node.id, s.name
			find := func(m *Machine) *semaphore { return m.semaphores.lookup(&m.buckets[i], node, name) }
			if s.ephemeral {
				continue
			}
			if s.semaphoreExtras != &noExtras {
				list["semaphoreExtras"] = func(m *Machine) reflect.Value { return of(find(m).semaphoreExtras) }
			}
			list["semaphore"] = func(m *Machine) reflect.Value { return of(find(m)) }
			if e := s.owners.seekOrder(0); e != nil {
				order := e.orderID
				list["entry"] = func(m *Machine) reflect.Value { return of(entryAt(find(m), order)) }
			}
			if e := s.waiters.seekOrder(0); e != nil {
				order := e.orderID
				list["waiter"] = func(m *Machine) reflect.Value { return of(entryAt(find(m), order)) }
			}
		}
		for key := range m.buckets[i].objects[kindProcess] {
			list["process"] = func(m *Machine) reflect.Value { return of(m.buckets[i].objects[kindProcess][key]) }
		}
		for key := range m.buckets[i].objects[kindLimit] {
			list["limit"] = func(m *Machine) reflect.Value { return of(m.buckets[i].objects[kindLimit][key]) }
		}
		for key := range m.buckets[i].objects[kindTrack] {
			list["track"] = func(m *Machine) reflect.Value { return of(m.buckets[i].objects[kindTrack][key]) }
		}
	}
	return list
}

// keyFields are the fields that a record is found by.
var keyFields = map[string]bool{"sessionRecord.id": true, "node.id": true, "semaphore.name": true,
	"hostedObject.name": true, "entry.orderID": true}

// TestEveryFieldIsKept changes each field of each kind of record to what it is not: the digest sees
// it, a snapshot has it, and it is the same in what is restored, or that is refused. A field that
// is left out of a record, by its writer or by its reader, is found here at once, whatever
// histories the other tests happen to make.
func TestEveryFieldIsKept(t *testing.T) {
	walked, changed := map[string]bool{}, map[string]int{}
	for seed := range uint64(6) {
		x := newChurn(seed, New(3))
		for range 400 {
			x.step()
		}
		records := recordsOf(x.m)
		for _, name := range slices.Sorted(maps.Keys(records)) {
			c := &fieldCheck{t: t, m: x.m, plain: snapshotOf(t, x.m), digest: x.m.Digest(),
				record: name, find: records[name], walked: walked, changed: changed}
			c.walk(name, nil)
		}
		checkLists(t, x.m)
	}
	for key := range derived {
		if _, field, _ := strings.Cut(key, "/"); field == "" && !walked[key] {
			t.Errorf("%s: there is no such field, or no record with it", key)
		}
	}
	for _, name := range []string{
		"Machine.clock.takeovers.open", "Machine.nodeTable.dropped", "Machine.imports", "Machine.clearing.session",
		"bucket.orderCounter", "bucket.logBase", "node.formerGraces", "node.graceFloor",
		"node.config.GracePeriod",
		"sessionUse.answers.list", "sessionRecord.timer.at", "homeSession.key", "remote.lastSeen", "semaphoreExtras.data",
		"entry.orderID", "waiter.timer.at", "process.revision", "track.revision",
	} {
		if changed[name] == 0 {
			t.Errorf("%s was never changed: the test has lost its way", name)
		}
	}
}

// checkLists does the same with what is no field of a record by its own: lists of the header, and
// keys that are remembered.
func checkLists(t *testing.T, m *Machine) {
	t.Helper()
	plain, digest := snapshotOf(t, m), m.Digest()
	look := func(name string, same func(x *Machine) bool) {
		t.Helper()
		b := snapshotOf(t, m)
		if m.Digest() == digest || bytes.Equal(b, plain) {
			t.Errorf("%s: the digest or the snapshot does not see it", name)
		}
		if x, err := readBack(b); err == nil && !same(x) {
			t.Errorf("%s: restored as another", name)
		}
	}
	for p := range m.sessions.All() {
		was := m.ending
		m.ending = append(slices.Clone(was), p)
		look("Machine.ending",
			func(x *Machine) bool { return len(x.ending) == len(m.ending) && x.ending[len(was)].id == p.id })
		m.ending = was
		was = m.orphaned
		m.orphaned = append(slices.Clone(was), p)
		look("Machine.orphaned",
			func(x *Machine) bool { return len(x.orphaned) == len(m.orphaned) && x.orphaned[len(was)].id == p.id })
		m.orphaned = was
		break
	}
	for _, n := range m.nodes {
		was := m.dropping
		m.dropping = append(slices.Clone(was), n)
		look("Machine.dropping", func(x *Machine) bool { return len(x.dropping) == len(m.dropping) })
		m.dropping = was
		break
	}
	if len(m.endedCreateIDs.Queue()) > 0 {
		k := &m.endedCreateIDs.Queue()[0]
		k.Until++
		look("ended", func(x *Machine) bool { return x.endedCreateIDs.Queue()[0] == *k })
		k.Until--
	}
	if len(m.endedRemotes.Queue()) > 0 {
		k := &m.endedRemotes.Queue()[0]
		k.Until++
		look("gone", func(x *Machine) bool { return x.endedRemotes.Queue()[0] == *k })
		k.Until--
	}
}
