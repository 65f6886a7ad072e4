package shard

import (
	"fmt"
	"math"
	"testing"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard/rollout"
)

// setQuota gives the node of the load other quotas.
func (x *benchMachine) setQuota(t *testing.T, revision, bytes uint64) {
	t.Helper()
	c := scriptConfig()
	c.MaxBytes = bytes
	x.begin()
	x.entry = AppendCommand(x.entry,
		Command{Kind: CmdNodePut, Body: AppendNodePut(nil, NodePutBody{Node: 1, Revision: revision, Config: c})})
	x.commit()
}

func (x *benchMachine) bytes(t *testing.T) uint64 {
	t.Helper()
	u, ok := x.m.Nodes().Usage(1)
	if !ok {
		t.Fatal("no usage")
	}
	return u.Used[QuotaBytes]
}

// TestTrackBytes: whatever makes a track larger is let through up to the quota of bytes and refused
// one byte past it; what takes the place of something of its size is let through, and what a
// running rollout needs is never refused.
func TestTrackBytes(t *testing.T) {
	x, incarnations := newTrackMachine(t)
	revision := uint64(1)
	config := func(gate string) protocol.TrackConfig {
		return protocol.TrackConfig{Source: protocol.SourcePublished, ExplicitCodes: []string{"Bad"}, Locations: []protocol.LocationConfig{
			{Name: "SAS"}, {Name: "MAN", Delay: 5_000,
				Gates: []protocol.GateConfig{{Name: "g", Kind: protocol.GateCommand, Spec: gate}}},
		}}
	}
	if e := x.send(t, CmdTrackAlter, &protocol.TrackAlter{Head: x.head(0), Name: trackName,
		Revision: 1, Config: config("1")}); e.Status != protocol.StatusOK {
		t.Fatalf("alter: %v %s", e.Status, e.Text)
	}
	for _, c := range []struct {
		name string
		more uint64 // bytes that the request adds
		send func() Event
	}{
		{"create", 512 + 5 + 256 + 3 + 3, func() Event {
			c := protocol.TrackConfig{Source: protocol.SourcePublished, ExplicitCodes: []string{"Bad"},
				Locations: []protocol.LocationConfig{{Name: "SAS"}}}
			return x.send(t, CmdTrackCreate, &protocol.TrackCreate{Head: x.head(0), Name: []byte("other"), Config: c})
		}},
		{"alter", 9, func() Event {
			return x.send(t, CmdTrackAlter,
				&protocol.TrackAlter{Head: x.head(0), Name: trackName, Revision: 2, Config: config("1234567890")})
		}},
		{"register", 512 + 5 + 4, func() Event {
			return x.send(t, CmdTrackRegister, &protocol.TrackRegister{
				Head: x.head(1), Name: trackName, ID: "MAN-2", Location: "MAN",
				Role: protocol.InstanceFollower, Meta: "meta",
			})
		}},
		{"register again", 1, func() Event {
			return x.send(t, CmdTrackRegister, &protocol.TrackRegister{
				Head: x.head(1), Name: trackName, ID: "MAN-2", Location: "MAN",
				Role: protocol.InstanceFollower, Meta: "Meta!",
			})
		}},
		{"publish", 64 + 7, func() Event {
			return x.send(t, CmdTrackPublish,
				&protocol.TrackPublish{Head: x.head(0), Name: trackName, Payload: []byte("payload")})
		}},
	} {
		before := x.bytes(t)
		revision++
		x.setQuota(t, revision, before+c.more-1)
		if e := c.send(); e.Status != protocol.StatusPreconditionFailed || e.Text != textBytesQuota(before+c.more-1) {
			t.Errorf("%s, one byte past the quota: %v %q", c.name, e.Status, e.Text)
		}
		if got := x.bytes(t); got != before {
			t.Errorf("%s: refused, and there are %d bytes instead of %d", c.name, got, before)
		}
		revision++
		x.setQuota(t, revision, before+c.more)
		if e := c.send(); e.Status != protocol.StatusOK {
			t.Fatalf("%s, at the quota: %v %q", c.name, e.Status, e.Text)
		}
		if got := x.bytes(t); got != before+c.more {
			t.Errorf("%s: %d bytes became %d, want %d more", c.name, before, got, c.more)
		}
	}
	// Far above a quota that was lowered.
	x.setQuota(t, revision+1, 1)
	if e := x.send(t, CmdTrackPoll, x.pollOf(0, incarnations[0], 1, 42)); e.Status != protocol.StatusOK {
		t.Errorf("a poll: %v %s", e.Status, e.Text)
	}
	if e := x.send(t, CmdTrackRegister, &protocol.TrackRegister{
		Head: x.head(1), Name: trackName, ID: "MAN-2", Location: "MAN", Role: protocol.InstanceLeader, Meta: "meta",
	}); e.Status != protocol.StatusOK {
		t.Errorf("an instance that takes its own place: %v %s", e.Status, e.Text)
	}
	if e := x.send(t, CmdTrackDelete, &protocol.TrackDelete{Head: x.head(0), Name: trackName, Force: true}); e.Status != protocol.StatusOK {
		t.Fatalf("delete: %v %s", e.Status, e.Text)
	}
	if got, want := x.bytes(t), uint64(2*(512+6)+512+5+256+3+3); got != want {
		t.Errorf("%d bytes are left, want %d: two sessions and the other track", got, want)
	}
}

// TestPublishAtTheQuota: where a version is published in the place of another one, its size alone
// counts.
func TestPublishAtTheQuota(t *testing.T) {
	x, _ := newTrackMachine(t) // with a version whose payload has three bytes
	publish := func(payload string) Event {
		return x.send(t, CmdTrackPublish, &protocol.TrackPublish{Head: x.head(0), Name: trackName, Payload: []byte(payload)})
	}
	for range rollout.MaxPublished - 1 {
		if e := publish("payload"); e.Status != protocol.StatusOK {
			t.Fatalf("publish: %v %s", e.Status, e.Text)
		}
	}
	before := x.bytes(t)
	x.setQuota(t, 2, before)
	if e := publish("1234"); e.Status != protocol.StatusPreconditionFailed {
		t.Errorf("a byte more than what goes: %v %s", e.Status, e.Text)
	}
	if e := publish("123"); e.Status != protocol.StatusOK || x.bytes(t) != before {
		t.Errorf("as much as what goes: %v %s, and %d bytes became %d", e.Status, e.Text, before, x.bytes(t))
	}
}

// TestQuotaShareOfBytes holds what a shard admits of a quota that fills in pieces.
func TestQuotaShareOfBytes(t *testing.T) {
	m := New(1)
	m.buckets = make([]bucket, 4096)
	for _, c := range []struct{ copies, quota, want uint64 }{
		{4096, 1 << 30, 1 << 30},
		{256, 1 << 30, 1<<26 + 4*(1<<13)*(1<<8) + 4<<16},
		{256, 10 << 20, 655_360 + 4*809*256 + 4<<16},
		{256, 100_000, 100_000},
		{256, math.MaxUint64, 1<<60 + 4*(1<<30)*(1<<8) + 4<<16},
		{0, 1 << 30, 4 << 16},
	} {
		m.copyCount = c.copies
		if got := m.quotaShareOf(c.quota, quotaValueBytes); got != c.want {
			t.Errorf("%d of 4096 buckets, quota %d: %d, want %d", c.copies, c.quota, got, c.want)
		}
	}
}

// TestQuotaSharesUpdate: what a shard admits of a node's quotas is worked out once, and again when
// the quotas change or copies of buckets come and go.
func TestQuotaSharesUpdate(t *testing.T) {
	m := New(1)
	index := uint64(0)
	apply := func(c Command) {
		index++
		var out Events
		m.Apply(index, AppendCommand(AppendHeader(nil, Header{Format: 1, Epoch: 1 << 16, Seq: index, LogTime: 1}), c),
			&out)
	}
	put := func(revision, bytes, waiters uint64) {
		c := scriptConfig()
		c.MaxBytes, c.MaxWaiters = bytes, waiters
		apply(Command{Kind: CmdNodePut,
			Body: AppendNodePut(nil, NodePutBody{Node: 1, Revision: revision, Config: c})})
	}
	check := func(what string) {
		t.Helper()
		n := m.nodes[1]
		u := m.admitted(n)
		if u.maxBytes != m.quotaShareOf(n.config.MaxBytes, quotaValueBytes) ||
			u.maxWaiters != m.quotaShare(n.config.MaxWaiters) {
			t.Errorf("%s: %d bytes and %d waiters, want %d and %d", what, u.maxBytes, u.maxWaiters,
				m.quotaShareOf(n.config.MaxBytes, quotaValueBytes), m.quotaShare(n.config.MaxWaiters))
		}
	}
	apply(Command{Kind: CmdTakeOver})
	put(1, 1<<40, 1<<20)
	check("no buckets")
	for i := range uint32(4) {
		apply(Command{Kind: CmdBuckets, Body: AppendBuckets(nil, BucketsBody{Total: 4096, First: i, Count: 1})})
		check(fmt.Sprintf("%d buckets", i+1))
	}
	put(2, 1<<41, 1<<21)
	check("other quotas")
	run := BucketsBody{Total: 4096, First: 1, Count: 2, Epoch: 2}
	apply(Command{Kind: CmdFreeze, Body: AppendBuckets(nil, run)})
	check("frozen")
	apply(Command{Kind: CmdDropBuckets, Body: AppendBuckets(nil, run)})
	for m.clearing.active {
		index++
		var out Events
		m.Apply(index, AppendHeader(nil, Header{Format: 1, Epoch: 1 << 16, Seq: index, LogTime: 1}), &out)
	}
	if m.copyCount != 2 {
		t.Fatalf("%d copies", m.copyCount)
	}
	check("dropped")
}

// TestAnswersCountAgainstQuota: answers that a client does not confirm to have heard, beyond a few,
// count against its node's bytes, whatever they answer, and the number after the last that fits is
// refused until it does. They go with the client's word, and with the session.
func TestAnswersCountAgainstQuota(t *testing.T) {
	x, _ := newTrackMachine(t)
	x.setQuota(t, 2, math.MaxUint64)
	before, low := x.bytes(t), x.seqs[0]+1
	release := func() Event {
		head := x.head(0)
		head.Low = low
		return x.send(t, CmdRelease, &protocol.Release{Head: head, Name: []byte("nothing")})
	}
	for n := range freeAnswers {
		if e := release(); e.Status != protocol.StatusOK || x.bytes(t) != before {
			t.Fatalf("answer %d: %v %s, %d bytes", n, e.Status, e.Text, x.bytes(t)-before)
		}
	}
	x.setQuota(t, 3, before+3*answerBytes)
	for n := range uint64(3) {
		if e := release(); e.Status != protocol.StatusOK || x.bytes(t) != before+(n+1)*answerBytes {
			t.Fatalf("%v %s, %d bytes", e.Status, e.Text, x.bytes(t)-before)
		}
	}
	for range 2 {
		if e := release(); e.Status != protocol.StatusOverloaded || e.Text != textAnswersQuota {
			t.Fatalf("one more: %v %s", e.Status, e.Text)
		}
	}
	// What it has, it can give back.
	low = x.seqs[0] - 1
	x.setQuota(t, 4, math.MaxUint64)
	held := func(kind CommandKind) (e Event) {
		head := x.head(0)
		head.Low = low
		if kind == CmdRelease {
			return x.send(t, kind, &protocol.Release{Head: head, Name: []byte("held")})
		}
		return x.send(t, kind, &protocol.Acquire{Head: head, Name: []byte("held"), Count: 1, Ephemeral: true})
	}
	if e := held(CmdAcquire); e.Status != protocol.StatusOK {
		t.Fatal(e.Status, e.Text)
	}
	for range freeAnswers + 1 {
		release()
	}
	x.setQuota(t, 5, 1)
	if e := release(); e.Status != protocol.StatusOverloaded {
		t.Fatalf("a release of nothing: %v %s", e.Status, e.Text)
	}
	if e := held(CmdRelease); e.Status != protocol.StatusOK || !e.Flag {
		t.Fatalf("a release of what is held: %v %s", e.Status, e.Text)
	}
	x.setQuota(t, 6, before+3*answerBytes)
	low = x.seqs[0] - 1 // it has heard all that were answered
	if e := release(); e.Status != protocol.StatusOK || x.bytes(t) != before {
		t.Fatalf("%v %s, %d bytes", e.Status, e.Text, x.bytes(t)-before)
	}
	for range freeAnswers + 2 {
		release()
	}
	if x.bytes(t) <= before {
		t.Fatal("nothing is counted again")
	}
	if e := x.send(t, CmdSessionStop, &protocol.SessionStop{Session: x.sessions[0],
		Epoch: 1}); e.Status != protocol.StatusOK || x.bytes(t) >= before {
		t.Fatalf("the session ended: %v, %d bytes", e.Status, x.bytes(t))
	}
}
