package shard

import (
	"bytes"
	"fmt"
	"reflect"
	"slices"

	"github.com/signalbox-dev/signalbox/protocol"
)

// sameEvents compares what left the machine with what left the model. Sentences are the machine's
// own business, but a refusal must have one. So is its number, which must be one of its status.
func sameEvents(got []Event, want []Event) error {
	for i := range max(len(got), len(want)) {
		switch {
		case i >= len(got):
			return fmt.Errorf("event %d is missing: %s", i, show(want[i]))
		case i >= len(want):
			return fmt.Errorf("event %d is one too many: %s", i, show(got[i]))
		}
		g, w := got[i], want[i]
		if g.Text == "" && g.Kind == EventReply && g.Status != protocol.StatusOK {
			return fmt.Errorf("event %d has no sentence: %s", i, show(g))
		}
		if g.Refusal != protocol.RefusalNone && g.Refusal.Status() != g.Status {
			return fmt.Errorf("event %d is the refusal %v: %s", i, g.Refusal, show(g))
		}
		g.Refusal = protocol.RefusalNone
		if w.Kind != EventSessionAttached && w.Text == "" {
			g.Text = ""
		}
		if !sameEvent(g, w) {
			return fmt.Errorf("event %d is\n   %s, want\n   %s", i, show(g), show(w))
		}
	}
	return nil
}

func sameEvent(a, b Event) bool {
	name := bytes.Equal(a.Name, b.Name)
	a.Name, b.Name = nil, nil
	return name && reflect.DeepEqual(a, b)
}

// show writes all fields that are not zero.
func show(e Event) string {
	b := fmt.Appendf(nil, "kind %d command %d", e.Kind, e.Command)
	field := func(name string, v uint64) {
		if v != 0 {
			b = fmt.Appendf(b, " %s %d", name, v)
		}
	}
	if e.Status != 0 {
		b = fmt.Appendf(b, " %s", e.Status)
	}
	field("state", uint64(e.State))
	field("reason", uint64(e.Reason))
	if e.Flag {
		b = append(b, " flag"...)
	}
	field("session", e.Session)
	field("seq", e.Seq)
	field("epoch", e.Epoch)
	field("timeout", e.Timeout)
	field("grace", e.Grace)
	field("node", e.Node)
	field("order", e.OrderID)
	field("version", e.Result)
	field("cause", uint64(e.Cause))
	if g := e.Grant; g != nil { // moments are of a shard
		b = fmt.Appendf(b, " slots %v left %d preemption %d", g.Slots, g.Until-min(g.Until, g.Now), g.Preemption)
	}
	if len(e.Name) > 0 {
		b = fmt.Appendf(b, " name %.20q", e.Name)
	}
	if e.Text != "" {
		b = fmt.Appendf(b, " text %.20q", e.Text)
	}
	return string(b)
}

func sameChanges(got, want []SemaphoreChange) error {
	same := func(a, b SemaphoreChange) bool {
		return a.Node == b.Node && a.Bucket == b.Bucket && bytes.Equal(a.Name, b.Name) &&
			a.Owners == b.Owners && a.Kind == b.Kind && a.Limit == b.Limit &&
			a.Ephemeral == b.Ephemeral && a.Version == b.Version && bytes.Equal(a.Data, b.Data) &&
			sameOwner(a.Owner, b.Owner)
	}
	if !slices.EqualFunc(got, want, same) {
		return fmt.Errorf("changes are\n   %v, want\n   %v", got, want)
	}
	return nil
}

func sameOwner(a, b protocol.Owner) bool {
	return a.OrderID == b.OrderID && a.Session == b.Session && a.Count == b.Count &&
		bytes.Equal(a.Data, b.Data) && a.Description == b.Description &&
		a.Since == b.Since && reflect.DeepEqual(a.Options, b.Options)
}

// sameState compares all that can be read from the machine with the model. limit is the size of
// pages, 0 for the machine's own.
func sameState(m *Machine, w *model, limit uint32, ids []uint64) error {
	if m.LogTime() != w.now || m.Epoch() != w.epoch || m.AppliedIndex() != w.index {
		return fmt.Errorf("log time %d, epoch %d, index %d, want %d, %d, %d", m.LogTime(),
			m.Epoch(), m.AppliedIndex(), w.now, w.epoch, w.index)
	}
	if tier, total := m.Tier(); tier != w.tier || total != w.total {
		return fmt.Errorf("tier %d of %d buckets, want %d of %d", tier, total, w.tier, w.total)
	}
	for b := range w.total + 1 {
		if epoch, active := m.Bucket(b); active != w.active[b] || active != (epoch > 0) {
			return fmt.Errorf("bucket %d active %v, epoch %d, want %v", b, active, epoch, w.active[b])
		}
	}
	for id := range uint64(5) {
		if err := sameNode(m, w, id, limit, ids); err != nil {
			return fmt.Errorf("node %d: %w", id, err)
		}
	}
	for _, id := range ids {
		if err := sameSession(m, w, id); err != nil {
			return fmt.Errorf("session %d: %w", id, err)
		}
	}
	var remotes, want [][2]uint64
	m.Sessions().Remotes(func(session, epoch uint64) bool {
		remotes = append(remotes, [2]uint64{session, epoch})
		return true
	})
	for _, s := range w.byID() {
		if !s.home && !w.idle(s) {
			want = append(want, [2]uint64{s.id, s.epoch})
		}
	}
	if !slices.Equal(remotes, want) {
		return fmt.Errorf("remote sessions %v, want %v", remotes, want)
	}
	if err := sameCounters(m, w); err != nil && !w.loose {
		return err
	}
	return sameDeadline(m, w)
}

// manyPages is more than any walk here takes.
const manyPages = 1000

func sameNode(m *Machine, w *model, id uint64, limit uint32, ids []uint64) error {
	n := w.node(id)
	config, ok := m.Nodes().Config(id)
	if ok != (n != nil) || ok && config != n.config {
		return fmt.Errorf("known %v with %v, want %v", ok, config, n)
	}
	if n == nil {
		for name, err := range map[string]error{
			"list":     m.Semaphores().List(&protocol.List{Node: id}, &protocol.ListReply{}),
			"sessions": m.Sessions().List(&protocol.SessionList{Node: id}, &protocol.SessionListReply{}),
		} {
			if st := protocol.StatusOf(err); st != protocol.StatusNotFound {
				return fmt.Errorf("%s answers %v", name, st)
			}
		}
		return nil
	}
	// Semaphores: list, describe and stream.
	sems := w.byName(id)
	var want []protocol.ListItem
	for _, s := range sems {
		want = append(want, w.listItem(s, nil))
		if err := sameSemaphore(m, w, s, limit); err != nil {
			return fmt.Errorf("semaphore %.20q: %w", s.name, err)
		}
	}
	if err := sameList(m, &protocol.List{Node: id, Limit: limit}, want); err != nil {
		return err
	}
	for _, prefix := range [][]byte{[]byte("a"), []byte("ab")} {
		part := slices.DeleteFunc(slices.Clone(want),
			func(it protocol.ListItem) bool { return !bytes.HasPrefix(it.Name, prefix) })
		if err := sameList(m, &protocol.List{Node: id, Limit: limit, Prefix: prefix}, part); err != nil {
			return err
		}
	}
	for _, session := range ids {
		var part []protocol.ListItem
		if s := w.session(session); s != nil && s.node == id {
			for _, sem := range sems {
				if r := sem.entryOf(s); r != nil {
					part = append(part, w.listItem(sem, r))
				}
			}
		}
		if err := sameList(m, &protocol.List{Node: id, Limit: limit, Session: session}, part); err != nil {
			return fmt.Errorf("session %d: %w", session, err)
		}
	}
	if err := sameStream(m, w, id, sems, limit); err != nil {
		return err
	}
	return sameSessions(m, w, id, limit)
}

func sameSessions(m *Machine, w *model, id uint64, limit uint32) error {
	var infos []protocol.SessionInfo
	for _, s := range w.byID() {
		if s.home && s.node == id && w.alive(s) {
			infos = append(infos, w.info(s))
		}
	}
	req, out := protocol.SessionList{Node: id, Limit: limit}, protocol.SessionListReply{}
	var got []protocol.SessionInfo
	for range manyPages {
		if err := m.Sessions().List(&req, &out); err != nil {
			return err
		}
		got = append(got, out.Sessions...)
		if req.Cursor = out.Cursor; len(req.Cursor) == 0 {
			break
		}
	}
	if !slices.Equal(got, infos) {
		return fmt.Errorf("sessions %v, want %v", got, infos)
	}
	return nil
}

func (m *model) listItem(s *modelSemaphore, r *modelEntry) protocol.ListItem {
	it := protocol.ListItem{
		Name: s.name, Limit: s.limit, Used: s.used(), Ephemeral: s.ephemeral,
		Version: s.version, DataLen: uint64(len(s.data)),
		NumOwners: uint64(len(s.entries) - s.waiters()), NumWaiters: uint64(s.waiters()),
	}
	if r != nil {
		it.OrderID, it.Count, it.Waiting = r.order, r.count, !r.owner
	}
	return it
}

func sameList(m *Machine, req *protocol.List, want []protocol.ListItem) error {
	var got []protocol.ListItem
	for range manyPages {
		var out protocol.ListReply
		if err := m.Semaphores().List(req, &out); err != nil {
			return err
		}
		if len(out.Semaphores) > int(req.Limit) && req.Limit > 0 {
			return fmt.Errorf("a page of %d with limit %d", len(out.Semaphores), req.Limit)
		}
		got = append(got, out.Semaphores...)
		if req.Cursor = out.Cursor; len(req.Cursor) == 0 {
			break
		}
	}
	same := func(a, b protocol.ListItem) bool {
		return bytes.Equal(a.Name, b.Name) && a.Limit == b.Limit && a.Used == b.Used &&
			a.Ephemeral == b.Ephemeral && a.Version == b.Version &&
			a.DataLen == b.DataLen && a.NumOwners == b.NumOwners && a.NumWaiters == b.NumWaiters &&
			a.OrderID == b.OrderID && a.Count == b.Count &&
			a.Waiting == b.Waiting
	}
	if !slices.EqualFunc(got, want, same) {
		return fmt.Errorf("list %v, want %v", got, want)
	}
	return nil
}

// sameSemaphore compares a description, and holds the invariants of the owners.
func sameSemaphore(m *Machine, w *model, s *modelSemaphore, limit uint32) error {
	req := protocol.Describe{Node: s.node, Name: s.name,
		Flags: protocol.WithOwners | protocol.WithWaiters | protocol.WithSlots, Limit: limit}
	var all, out protocol.DescribeReply
	for page := range manyPages {
		first := page == 0
		if err := m.Semaphores().Describe(&req, &out); err != nil {
			return err
		}
		if n := len(out.Owners) + len(out.Waiters); n > int(limit) && limit > 0 {
			return fmt.Errorf("a page of %d entries with limit %d", n, limit)
		}
		if first {
			all = out
			all.Owners, all.Waiters = nil, nil
		}
		all.Owners, all.Waiters = append(all.Owners, out.Owners...), append(all.Waiters, out.Waiters...)
		if req.Cursor = out.Cursor; len(req.Cursor) == 0 {
			break
		}
	}
	if err := checkDescription(&all, s); err != nil {
		return err
	}
	if err := sameDetails(m, w, &all, s); err != nil {
		return err
	}
	var owners []protocol.Owner
	for _, r := range s.entries {
		if r.owner {
			owners = append(owners, w.described(s, r))
		}
	}
	waiters := s.describedWaiters()
	sameWaiter := func(a, b protocol.Waiter) bool {
		return a.OrderID == b.OrderID && a.Session == b.Session && a.Count == b.Count &&
			bytes.Equal(a.Data, b.Data) && a.Since == b.Since &&
			a.Description == b.Description && a.Timeout == b.Timeout && reflect.DeepEqual(a.Options, b.Options)
	}
	switch {
	case all.Index != w.index || all.Revision != s.revision && !w.loose || !bytes.Equal(all.Name, s.name) ||
		!bytes.Equal(all.Data, s.data) ||
		all.Version != s.version:
		return fmt.Errorf("index %d, revision %d, %q, data %.20q, version %d, want %d, %d, %q, %.20q, %d",
			all.Index, all.Revision, all.Name, all.Data, all.Version, w.index, s.revision, s.name, s.data, s.version)
	case all.Used != s.used() || all.Limit != s.limit || all.Ephemeral != s.ephemeral || all.CreatedAt != s.created:
		return fmt.Errorf("used %d of %d, ephemeral %v, created %d, want %d of %d, %v, %d",
			all.Used, all.Limit, all.Ephemeral, all.CreatedAt, s.used(), s.limit, s.ephemeral, s.created)
	case !slices.EqualFunc(all.Owners, owners, sameOwner) || int(all.NumOwners) != len(owners):
		return fmt.Errorf("%d owners %v, want %v", all.NumOwners, all.Owners, owners)
	case !slices.EqualFunc(all.Waiters, waiters, sameWaiter) || int(all.NumWaiters) != len(waiters):
		return fmt.Errorf("%d waiters %v, want %v", all.NumWaiters, all.Waiters, waiters)
	}
	return nil
}

// checkDescription checks a description by itself: the owners are the greedy prefix of the queue by
// order id, and hold no more than the limit, unless it was lowered.
func checkDescription(d *protocol.DescribeReply, s *modelSemaphore) error {
	sum, last, limit := uint64(0), uint64(0), s.limit
	for _, o := range d.Owners {
		if o.OrderID <= last {
			return fmt.Errorf("owners are not in order: %v", d.Owners)
		}
		if sum+o.Count < sum {
			return fmt.Errorf("units overflow: %v", d.Owners)
		}
		last, sum = o.OrderID, sum+o.Count
	}
	if sum != d.Used {
		return fmt.Errorf("used is %d, owners hold %d", d.Used, sum)
	}
	if s.queue != nil && s.queue.late {
		return nil
	}
	for i, q := range d.Waiters {
		if q.OrderID <= last {
			return fmt.Errorf("a waiter is ahead of an owner, or the queue is not in order: %v %v",
				d.Owners, d.Waiters)
		}
		last = q.OrderID
		if i == 0 && sum <= limit && q.Count <= limit-sum {
			return fmt.Errorf("the first waiter fits: %v, used %d of %d", q, sum, limit)
		}
	}
	if d.Ephemeral && len(d.Owners)+len(d.Waiters) == 0 {
		return fmt.Errorf("ephemeral without owners and waiters")
	}
	return nil
}

// sameStream reads the snapshot a stream over the whole node begins with, in small pages.
func sameStream(m *Machine, w *model, node uint64, sems []*modelSemaphore, limit uint32) error {
	var items []protocol.SnapshotItem
	var cursor []byte
	for page := range manyPages {
		first := page == 0
		var out protocol.Snapshot
		next, err := m.Semaphores().StreamSnapshot(node, nil, true, cursor, int(limit)*100, &out)
		if err != nil {
			return err
		}
		if out.First != first || out.Last != (len(next) == 0) || out.Index != w.index {
			return fmt.Errorf("stream page first %v, last %v, index %d", out.First, out.Last, out.Index)
		}
		for _, it := range out.Semaphores {
			if n := len(items); n > 0 && bytes.Equal(items[n-1].Name, it.Name) {
				items[n-1].Owners = append(items[n-1].Owners, it.Owners...)
				continue
			}
			items = append(items, it)
		}
		if cursor = next; len(cursor) == 0 {
			break
		}
	}
	if len(items) != len(sems) {
		return fmt.Errorf("stream of %d semaphores, want %d", len(items), len(sems))
	}
	for i, s := range sems {
		it := &items[i]
		var owners []protocol.Owner
		for _, r := range s.entries {
			if r.owner {
				owners = append(owners, s.asOwner(r))
			}
		}
		if !bytes.Equal(it.Name, s.name) || it.Limit != s.limit || it.Ephemeral != s.ephemeral ||
			it.Version != s.version ||
			!bytes.Equal(it.Data, s.data) || !slices.EqualFunc(it.Owners, owners, sameOwner) {
			return fmt.Errorf("stream item %v, want %v", it, s)
		}
		var one protocol.Snapshot
		if _, err := m.Semaphores().StreamSnapshot(node, s.name, false, nil, 0, &one); err != nil || len(one.Semaphores) != 1 {
			return fmt.Errorf("stream of one name: %v, %v", one, err)
		}
	}
	return nil
}

func (m *model) info(s *modelSession) protocol.SessionInfo {
	info := protocol.SessionInfo{
		Session: s.id, Node: s.node, State: protocol.SessionAttached, Epoch: s.epoch,
		Timeout: s.timeout, Description: s.desc, Client: s.client,
		CreatedAt: s.created,
	}
	if !s.attached {
		info.State, info.Remaining = protocol.SessionDetached, s.deadline-m.now
	}
	return info
}

func sameSession(m *Machine, w *model, id uint64) error {
	if err := sameHome(m, w, id); err != nil {
		return err
	}
	s := w.session(id)
	remote, ok := m.Sessions().Remote(id)
	if wantOK := s != nil && !s.home; ok != wantOK {
		return fmt.Errorf("remote session found %v, want %v", ok, wantOK)
	}
	if ok && (remote.Epoch != s.epoch || remote.Description != s.desc || remote.Node != s.node || (remote.Held == 0) != w.idle(s)) {
		return fmt.Errorf("remote session %+v, want %+v", remote, s)
	}
	return nil
}

// sameHome compares what is known of a session at its home.
func sameHome(m *Machine, w *model, id uint64) error {
	s := w.session(id)
	view, ok := m.Sessions().Home(id)
	if wantOK := s != nil && s.home && w.alive(s); ok != wantOK {
		return fmt.Errorf("found %v, want %v", ok, wantOK)
	}
	if ok {
		held := 0
		for _, sem := range w.sems {
			if sem.entryOf(s) != nil {
				held++
			}
		}
		want := SessionView{
			Session: id, Node: s.node, Epoch: s.epoch, Nonce: s.nonce, Key: s.key,
			Timeout: s.timeout, Grace: w.node(s.node).config.GracePeriod,
			Description: s.desc, Client: s.client, Attached: s.attached, Deadline: view.Deadline,
			CreatedAt: s.created, Held: held,
		}
		if w.loose {
			want.Held = view.Held
		}
		if !s.attached {
			want.Deadline = s.deadline
		}
		if view != want {
			return fmt.Errorf("view %+v, want %+v", view, want)
		}
	}
	var info protocol.SessionInfo
	node := uint64(1)
	if s != nil {
		node = s.node
	}
	err := m.Sessions().Describe(&protocol.SessionDescribe{Session: id, Node: node}, &info)
	switch want := protocol.StatusOK; {
	case !w.isHome(id):
		want = protocol.StatusWrongShard
		fallthrough
	case !ok:
		if want == protocol.StatusOK {
			want = protocol.StatusSessionExpired
		}
		if protocol.StatusOf(err) != want {
			return fmt.Errorf("describe: %v, want %v", err, want)
		}
	case err != nil || info != w.info(s):
		return fmt.Errorf("describe: %+v, %v, want %+v", info, err, w.info(s))
	}
	return sameByCreateID(m, w, s, node, ok)
}

// sameByCreateID compares what is read of a session by the create id of its start; alive: it lives,
// and is at home here.
func sameByCreateID(m *Machine, w *model, s *modelSession, node uint64, alive bool) error {
	if s == nil || !s.home {
		return nil
	}
	want := protocol.StatusOK
	switch {
	case w.total == 0 || !w.active[protocol.HomeBucket(s.create, w.total)]:
		want = protocol.StatusWrongShard
	case !alive:
		want = protocol.StatusSessionExpired
	}
	var info protocol.SessionInfo
	err := m.Sessions().Describe(&protocol.SessionDescribe{CreateID: s.create[:], Node: node}, &info)
	if want != protocol.StatusOK {
		if protocol.StatusOf(err) != want {
			return fmt.Errorf("describe by create id: %v, want %v", err, want)
		}
	} else if err != nil || info != w.info(s) {
		return fmt.Errorf("describe by create id: %+v, %v, want %+v", info, err, w.info(s))
	}
	return nil
}

func sameCounters(m *Machine, w *model) error {
	type row struct {
		node    uint64
		name    string
		session uint64
		counts  [3]uint64
	}
	var got, want []row
	m.Metrics().Counters(func(r CounterRow) bool {
		got = append(got, row{r.Node, string(r.Name), r.Session, [3]uint64{r.Acquires, r.Waits, r.Releases}})
		return true
	})
	for id := range uint64(5) {
		for _, s := range w.byName(id) {
			want = append(want, row{id, string(s.name), 0, s.counts})
			var sessions []uint64
			for session := range s.detail {
				sessions = append(sessions, session)
			}
			slices.Sort(sessions)
			for _, session := range sessions {
				want = append(want, row{id, string(s.name), session, *s.detail[session]})
			}
		}
	}
	if !slices.Equal(got, want) {
		return fmt.Errorf("counters %v, want %v", got, want)
	}
	return nil
}

// sameDeadline checks that a tick is asked for no later than it is needed, and asked for at all
// only while there is something to come.
func sameDeadline(m *Machine, w *model) error {
	at, ok := m.NextDeadline()
	next, want := w.next()
	if want && (!ok || at > max(next, w.now)) {
		return fmt.Errorf("next deadline %d %v, want %d", at, ok, next)
	}
	if ok && at < w.now {
		return fmt.Errorf("next deadline %d is before log time %d", at, w.now)
	}
	return nil
}

// next is the first moment at which something happens by itself.
func (m *model) next() (at uint64, ok bool) {
	for _, d := range m.deadlines() {
		if !ok || d < at {
			at, ok = d, true
		}
	}
	return at + 1, ok
}

// deadlines are the last moments before something happens by itself.
func (m *model) deadlines() (out []uint64) {
	for _, s := range m.sessions {
		switch {
		case s.home && !s.attached:
			out = append(out, s.deadline)
		case !s.home && m.idle(s):
			out = append(out, s.used+Retention)
		}
	}
	for _, s := range m.sems {
		for _, r := range s.entries {
			if r.timed {
				out = append(out, r.deadline)
			}
			if at := r.bound(); r.owner && at != 0 {
				out = append(out, at)
			}
		}
	}
	return out
}
