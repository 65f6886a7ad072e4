package cluster

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server/governor"
	"github.com/signalbox-dev/signalbox/server/peer"
	"github.com/signalbox-dev/signalbox/shard"
	"github.com/signalbox-dev/signalbox/shard/meta"
)

func TestCandidates(t *testing.T) {
	says := func(instance, incarnation, seq, leader, term uint64) *heartbeat {
		return &heartbeat{Instance: instance, Incarnation: incarnation, Seq: seq,
			Shards: []shardHeartbeat{{Shard: 2, Replica: instance, Leader: leader, Term: term}}}
	}
	for _, x := range []struct {
		what  string
		own   governor.ShardReport
		beats []*heartbeat
		want  []uint64
	}{
		{"nobody was heard: the master first", governor.ShardReport{}, nil, []uint64{1, 2, 3}},
		{"one says that it leads", governor.ShardReport{}, []*heartbeat{says(3, 1, 1, 3, 5)}, []uint64{3, 1, 2}},
		{"another one names the leader", governor.ShardReport{}, []*heartbeat{says(3, 1, 1, 2, 5)}, []uint64{2, 1, 3}},
		{"the newest term counts", governor.ShardReport{Replica: 1, Leader: 1, Term: 4}, []*heartbeat{says(3, 1, 1, 3, 6), says(2, 1, 1, 2, 5)}, []uint64{3, 1, 2}},
		{"one that knows of no leader says nothing", governor.ShardReport{Replica: 1, Leader: 1, Term: 4}, []*heartbeat{says(3, 1, 1, 0, 9)}, []uint64{1, 2, 3}},
		{"a replica that is not in the map leads nobody", governor.ShardReport{}, []*heartbeat{says(2, 1, 1, 77, 9)}, []uint64{1, 2, 3}},
	} {
		a := reach(t, &fakeTransport{}, &fakeLocal{report: map[uint64]governor.ShardReport{2: x.own}})
		for _, b := range x.beats {
			a.health.received(b)
		}
		if got := a.candidates(a.state(), 2); !slices.Equal(got, x.want) {
			t.Errorf("%s: %v, want %v", x.what, got, x.want)
		}
	}
	a := reach(t, &fakeTransport{}, &fakeLocal{})
	if got := a.candidates(a.state(), 99); got != nil {
		t.Errorf("a shard that is not there has candidates %v", got)
	}
	if err := a.Propose(t.Context(), 99, shard.Command{}); protocol.StatusOf(err) != protocol.StatusNotFound {
		t.Error(err)
	}
}

// refuses answers every call with a status.
func refuses(st protocol.Status) func(context.Context, uint8, []byte) ([]byte, error) {
	return func(context.Context, uint8, []byte) ([]byte, error) { return nil, protocol.Errorf(st, "no") }
}

func TestCallTriesTheNextInstance(t *testing.T) {
	done := func(context.Context, uint8, []byte) ([]byte, error) {
		return encode(&governor.Registers{Epoch: 42}), nil
	}
	undetermined := func(context.Context, uint8, []byte) ([]byte, error) {
		return nil, protocol.Errorf(protocol.StatusUnavailable, "the connection was lost, whether it was done is unknown")
	}
	silent := func(ctx context.Context, _ uint8, _ []byte) ([]byte, error) { <-ctx.Done(); return nil, ctx.Err() }
	type answers = map[string]func(context.Context, uint8, []byte) ([]byte, error)
	for _, x := range []struct {
		what    string
		answers answers
		local   error
		stuck   bool
		asked   []string
		epoch   uint64
		status  protocol.Status
		text    string
	}{
		{"here", nil, nil, false, nil, 7, protocol.StatusOK, ""},
		{"elsewhere", answers{"b:1": refuses(protocol.StatusWrongShard), "c:1": done}, errNotHere, false, []string{"b:1", "c:1"}, 42, protocol.StatusOK, ""},
		{"a dead one is passed over", answers{"c:1": done}, errNotHere, false, []string{"b:1", "c:1"}, 42, protocol.StatusOK, ""},
		{"a silent one is passed over", answers{"b:1": silent, "c:1": done}, errNotHere, false, []string{"b:1", "c:1"}, 42, protocol.StatusOK, ""},
		{"this one hangs", answers{"b:1": done}, nil, true, []string{"b:1"}, 42, protocol.StatusOK, ""},
		{"a refusal is the answer", answers{"b:1": refuses(protocol.StatusPreconditionFailed), "c:1": done}, errNotHere, false, []string{"b:1"}, 0, protocol.StatusPreconditionFailed, ""},
		{"what is unknown is not hidden behind 'not here'",
			answers{"b:1": undetermined, "c:1": refuses(protocol.StatusWrongShard)}, errNotHere, false,
			[]string{"b:1", "c:1"}, 0,
			protocol.StatusUnavailable, "unknown"},
		{"nobody", answers{"b:1": refuses(protocol.StatusWrongShard), "c:1": refuses(protocol.StatusWrongShard)}, errNotHere, false, []string{"b:1", "c:1"}, 0, protocol.StatusWrongShard, ""},
	} {
		l := &fakeTransport{answers: x.answers}
		a := reach(t, l, &fakeLocal{err: x.local, stuck: x.stuck})
		at, err := a.Registers(t.Context(), 2, 0)
		if protocol.StatusOf(err) != x.status || err == nil && at.Epoch != x.epoch || !slices.Equal(l.asked, x.asked) {
			t.Errorf("%s: %+v, error %v, asked %v", x.what, at, err, l.asked)
		}
		if x.text != "" && !strings.Contains(err.Error(), x.text) {
			t.Errorf("%s: %v", x.what, err)
		}
	}
}

// TestBackupPartsMayBeLate: a part of a backup that does not come in time, or is lost with its
// connection, is a part to be asked for again.
func TestBackupPartsMayBeLate(t *testing.T) {
	for _, late := range []error{peer.ErrUndetermined, context.DeadlineExceeded} {
		l := &fakeTransport{answers: map[string]func(context.Context, uint8, []byte) ([]byte, error){
			"b:1": func(context.Context, uint8, []byte) ([]byte, error) { return nil, late },
			"c:1": refuses(protocol.StatusWrongShard),
		}}
		m := &Service{leaders: reach(t, l, &fakeLocal{err: errNotHere})}
		m.cfg.Backup = func(context.Context, []byte) ([]byte, error) { return nil, errNotHere }
		if _, err := m.FetchBackup(t.Context(), 2, nil); protocol.StatusOf(err) != protocol.StatusUnavailable {
			t.Errorf("%v: %v", late, err)
		}
	}
	if !protocol.Retryable(protocol.StatusUnavailable) {
		t.Error("clients do not ask again")
	}
}

func TestCallEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	l := &fakeTransport{answers: map[string]func(context.Context, uint8, []byte) ([]byte, error){
		"b:1": func(context.Context, uint8, []byte) ([]byte, error) {
			cancel()
			return nil, protocol.Errorf(protocol.StatusUnavailable, "stopping")
		},
	}}
	a := reach(t, l, &fakeLocal{err: errNotHere})
	err := a.Propose(ctx, 2, shard.Command{})
	if !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "stopping") || len(l.asked) != 1 {
		t.Errorf("%v, asked %v", err, l.asked)
	}
}

// TestProcessExitInAnyCase: a host's address is the same in capitals. The transport gives it in
// small letters, whatever an instance advertises.
func TestProcessExitInAnyCase(t *testing.T) {
	state := threeMap(t)
	service := func(l *fakeTransport, self uint64) *Service {
		m := New(Config{Transport: l, Local: &fakeLocal{}, State: func() *meta.State { return state },
			Now:           func() (d timeDuration) { return d },
			ProcessExited: func(_ context.Context, address string) bool { return address == "B:1" }})
		m.SetInstance(self)
		m.SetReady()
		return m
	}
	far := &fakeTransport{}
	service(far, 3)
	near := &fakeTransport{answers: map[string]func(context.Context, uint8, []byte) ([]byte, error){
		"c:1": func(ctx context.Context, method uint8, body []byte) ([]byte, error) {
			return far.handles[method](ctx, "a:1", body)
		},
	}}
	var agree []string
	service(near, 1).ConfirmProcessExit(t.Context(), "B:1", func(from string) { agree = append(agree, from) })
	if !slices.Equal(agree, []string{"c:1"}) || !slices.Equal(near.asked, []string{"c:1"}) {
		t.Errorf("asked %v, of which %v agree", near.asked, agree)
	}
}

// TestCallsToOtherInstances: what one instance asks arrives at another as it was meant, and so do
// the answers.
func TestCallsToOtherInstances(t *testing.T) {
	there := &fakeLocal{}
	far := &fakeTransport{}
	state := threeMap(t)
	m := New(Config{Transport: far, Local: there, State: func() *meta.State { return state }, Now: func() (d timeDuration) { return d }})
	m.SetInstance(2)
	l := &fakeTransport{answers: map[string]func(context.Context, uint8, []byte) ([]byte, error){
		"b:1": func(ctx context.Context, method uint8, body []byte) ([]byte, error) {
			return far.handles[method](ctx, "a:1", body)
		},
	}}
	a := reach(t, l, &fakeLocal{err: errNotHere})
	ctx := t.Context()
	if err := a.Propose(ctx, 2, shard.Command{}); protocol.StatusOf(err) != protocol.StatusUnavailable {
		t.Errorf("before it is open: %v", err)
	}
	m.SetReady()
	members, err := a.Members(ctx, 2)
	if err != nil || members.ConfigChange != 9 || members.Voters[1] != "a:1" || members.NonVotings[2] != "b:1" ||
		!slices.Equal(members.Removed, []uint64{3}) {
		t.Errorf("%+v, %v", members, err)
	}
	run := shard.BucketsBody{Tier: 1, Total: 8, First: 1, Count: 2, Epoch: 3}
	chunk, next, err := a.Export(ctx, 2, run, nil)
	if err != nil || string(chunk) != "chunk" || string(next) != "next" {
		t.Errorf("%q, %q, %v", chunk, next, err)
	}
	if done, err := a.CopyBuckets(ctx, 3, 2, run); err != nil || !done {
		t.Errorf("copy of buckets: %t, %v", done, err)
	}
	for what, err := range map[string]error{
		"propose": a.Propose(ctx, 2, shard.Command{Kind: shard.CmdFreeze, Body: []byte("x")}), "add": a.AddNonVoting(ctx, 2, 4, "d:1", 9),
		"promote": a.Promote(ctx, 2, 2, 9), "remove": a.Remove(ctx, 2, 2, 9), "transfer": a.Transfer(ctx, 2, 2, 5),
	} {
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	if there.asked != 8 {
		t.Errorf("the other instance did %d things", there.asked)
	}
	// An error without a status is one of that instance, at that moment.
	there.err = errDisk
	if err := a.Propose(ctx, 2, shard.Command{}); !strings.Contains(err.Error(), "no space left") ||
		protocol.StatusOf(err) != protocol.StatusUnavailable {
		t.Error(err)
	}
	// Malformed bytes change nothing, and end nothing.
	for method, h := range far.handles {
		for _, b := range hostile {
			before := there.asked
			if _, err := h(ctx, "x:1", b); err == nil {
				t.Errorf("method %d takes %x", method, b[:min(len(b), 8)])
			}
			if there.asked != before {
				t.Errorf("method %d acts on %x", method, b[:min(len(b), 8)])
			}
		}
	}
	for _, h := range far.hears {
		for _, b := range hostile {
			h("x:1", b)
		}
	}
}
