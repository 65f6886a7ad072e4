package server

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server/servertest/await"
	"github.com/signalbox-dev/signalbox/server/serving"
	"github.com/signalbox-dev/signalbox/server/transport"
)

// trackKit is a track of two locations, and a connection with a session that has an instance in
// each.
type trackKit struct {
	*raw
	node     uint64
	session  uint64
	name     []byte
	at       uint64 // its bucket
	sas, man uint64 // incarnations
}

func newTrackKit(t *testing.T, s *Server) *trackKit {
	t.Helper()
	k := &trackKit{raw: connect(t, s), name: []byte("geo/base")}
	k.node = k.raw.node()
	k.session = k.raw.session(k.node, 1).Session
	k.at = k.bucket(k.node, string(k.name))
	var r protocol.TrackRevision
	k.must(protocol.KindTrackCreate, k.at, &protocol.TrackCreate{Head: k.head(k.session), Name: k.name, Config: trackConfig()}, &r)
	if r.Revision != 1 {
		t.Fatalf("create was answered %+v", r)
	}
	k.sas, k.man = k.register("sas-1", "SAS"), k.register("man-1", "MAN")
	return k
}

func trackConfig() protocol.TrackConfig {
	return protocol.TrackConfig{Source: protocol.SourcePublished, Locations: []protocol.LocationConfig{{Name: "SAS"}, {Name: "MAN"}}}
}

func (k *trackKit) register(id, location string) uint64 {
	k.t.Helper()
	var r protocol.TrackRegisterReply
	m := &protocol.TrackRegister{Head: k.head(k.session), Name: k.name, ID: id, Location: location,
		Role: protocol.InstanceLeader, Meta: "of a test"}
	k.must(protocol.KindTrackRegister, k.at, m, &r)
	if r.Incarnation == 0 {
		k.t.Fatalf("register was answered %+v", r)
	}
	return r.Incarnation
}

func (k *trackKit) publish(payload string) uint64 {
	k.t.Helper()
	var r protocol.TrackVersion
	k.must(protocol.KindTrackPublish, k.at, &protocol.TrackPublish{Head: k.head(k.session), Name: k.name, Payload: []byte(payload)}, &r)
	return r.Version
}

// poll asks for the target; with seq it reports that current is served.
func (k *trackKit) poll(id string, incarnation, seq, current uint64) (r protocol.TrackPollReply) {
	k.t.Helper()
	m := &protocol.TrackPoll{Session: k.session, Name: k.name, ID: id, Incarnation: incarnation, WithPayload: true}
	if seq > 0 {
		m.Report = protocol.UpdateReport{Seq: seq, Current: current, Target: current, Code: "OK", Attempts: 1}
	}
	k.must(protocol.KindTrackPoll, k.at, m, &r)
	r.Payload = bytes.Clone(r.Payload)
	return r
}

func (k *trackKit) status() (r protocol.TrackStatus) {
	k.t.Helper()
	m := &protocol.TrackDescribe{Node: k.node, Name: k.name,
		Flags: protocol.WithTrackConfig | protocol.WithTrackInstances, Consistency: protocol.Strict}
	k.must(protocol.KindTrackDescribe, k.at, m, &r)
	return r
}

// host is where the track is.
func (k *trackKit) host() *serving.Shard { return k.s.shardAt(0, k.at) }

// TestRolloutServed: a version goes through both locations, and every request that there is is
// answered.
func TestRolloutServed(t *testing.T) {
	s := start(t, nil)
	k := newTrackKit(t, s)
	watcher := connect(t, s)
	watcher.must(protocol.KindTrackWatch, k.at, &protocol.TrackWatch{Node: k.node, Name: k.name}, nil)
	var stands protocol.TrackStatus
	watcher.event(protocol.KindTrackStatus, &stands)
	if len(stands.Locations) != 2 || stands.NumInstances != 2 || len(stands.Instances) != 0 {
		t.Fatalf("the stream begins with %+v", stands)
	}

	v := k.publish("one")
	if r := k.poll("sas-1", k.sas, 0, 0); r.Version != v || string(r.Payload) != "one" || r.Status != protocol.PollTarget {
		t.Fatalf("the first poll was answered %+v", r)
	}
	if r := k.poll("sas-1", k.sas, 1, v); r.State != protocol.StateConverged {
		t.Fatalf("what was loaded was answered %+v", r)
	}
	await.True(t, "the second location to have it", func() bool { return k.poll("man-1", k.man, 0, 0).Version == v })
	k.must(protocol.KindTrackReport, k.at, &protocol.TrackReport{Session: k.session, Name: k.name, ID: "man-1", Incarnation: k.man,
		Report: protocol.UpdateReport{Seq: 1, Current: v, Target: v, Code: "OK", Attempts: 1}}, nil)
	k.poll("man-1", k.man, 1, v)
	st := k.status()
	if len(st.Locations) != 2 || st.Locations[1].Target != v || st.Locations[1].Reached != 1 ||
		len(st.Instances) != 2 || st.Instances[0].ID != "man-1" ||
		st.Instances[0].Meta != "of a test" || len(st.Config.Locations) != 2 || st.Last != v {
		t.Fatalf("status %+v", st)
	}
	var h protocol.TrackHistoryReply
	k.must(protocol.KindTrackHistory, k.at, &protocol.TrackHistory{Node: k.node, Name: k.name, Location: "MAN"}, &h)
	if len(h.Rows) != 1 || h.Rows[0].Version != v || h.Rows[0].Reason != protocol.ReasonInitial ||
		h.Rows[0].Converged == 0 || h.Rows[0].Wall == 0 {
		t.Fatalf("history %+v", h)
	}
	var list protocol.TrackListReply
	k.must(protocol.KindTrackList, k.at, &protocol.TrackList{Shard: k.host().ID(), Node: k.node, Prefix: []byte("geo/")}, &list)
	if len(list.Tracks) != 1 || string(list.Tracks[0].Name) != "geo/base" || list.Tracks[0].NumInstances != 2 ||
		list.Tracks[0].NumLocations != 2 || list.Tracks[0].Last != v {
		t.Fatalf("list %+v", list)
	}

	// A client without a part in it sees it all, in order.
	seen := func(kind protocol.TrackEventKind, location string, reason protocol.TrackReason) {
		t.Helper()
		for {
			var m protocol.TrackEvents
			watcher.event(protocol.KindTrackEvents, &m)
			for _, e := range m.Events {
				if e.Kind == kind && e.Location == location && e.Reason == reason {
					return
				}
			}
		}
	}
	seen(protocol.TrackEventPublished, "", 0)
	seen(protocol.TrackEventTarget, "SAS", protocol.ReasonInitial)
	seen(protocol.TrackEventTarget, "MAN", protocol.ReasonInitial)

	// Operators, and the rest.
	k.must(protocol.KindTrackSetRole, k.at, &protocol.TrackSetRole{Head: k.head(k.session), Name: k.name, ID: "man-1",
		Incarnation: k.man, Role: protocol.InstanceFollower}, nil)
	admin := func(m protocol.TrackAdmin) {
		t.Helper()
		m.Head, m.Name = k.head(k.session), k.name
		k.must(protocol.KindTrackAdmin, k.at, &m, nil)
	}
	admin(protocol.TrackAdmin{Verb: protocol.TrackPause})
	if r := k.poll("sas-1", k.sas, 1, v); r.Status != protocol.PollPaused {
		t.Fatalf("while it is paused a poll is answered %+v", r)
	}
	admin(protocol.TrackAdmin{Verb: protocol.TrackResume})
	admin(protocol.TrackAdmin{Verb: protocol.TrackExclude, Locations: []string{"MAN"}})
	admin(protocol.TrackAdmin{Verb: protocol.TrackInclude, Locations: []string{"MAN"}})
	second := k.publish("two")
	k.poll("sas-1", k.sas, 2, v)
	admin(protocol.TrackAdmin{Verb: protocol.TrackRollback, Locations: []string{"SAS"}, Version: v})
	if r := k.poll("sas-1", k.sas, 3, v); r.Version != v {
		t.Fatalf("rolled back from %d, a poll is answered %+v", second, r)
	}
	k.must(protocol.KindTrackWithdraw, k.at, &protocol.TrackWithdraw{Head: k.head(k.session), Name: k.name, Version: second}, nil)
	var revision protocol.TrackRevision
	k.must(protocol.KindTrackAlter, k.at,
		&protocol.TrackAlter{Head: k.head(k.session), Name: k.name, Revision: 1, Config: trackConfig()}, &revision)
	if revision.Revision != 2 {
		t.Fatalf("alter was answered %+v", revision)
	}
	admin(protocol.TrackAdmin{Verb: protocol.TrackDrop, ID: "man-1"})
	k.must(protocol.KindTrackUnregister, k.at,
		&protocol.TrackUnregister{Head: k.head(k.session), Name: k.name, ID: "sas-1", Incarnation: k.sas}, nil)
	if n := k.status().NumInstances; n != 0 {
		t.Fatalf("%d instances are left", n)
	}
	again := &protocol.TrackDelete{Head: k.head(k.session), Name: k.name}
	k.must(protocol.KindTrackDelete, k.at, again, nil)
	k.must(protocol.KindTrackDelete, k.at, again, nil) // the same request gets the same answer
	var cut protocol.StreamCut
	watcher.event(protocol.KindStreamCut, &cut)
	if cut.Status != protocol.StatusNotFound {
		t.Fatalf("the stream ended with %+v", cut)
	}
}

// TestRolloutGate: the outcome of a gate is reported by the client that ran it; the stream says
// that one is to be run.
func TestRolloutGate(t *testing.T) {
	s := start(t, nil)
	k := newTrackKit(t, s)
	config := trackConfig()
	config.Locations[0].Gates = []protocol.GateConfig{{Name: "smoke", Kind: protocol.GateCommand, Spec: "true"}}
	k.must(protocol.KindTrackAlter, k.at,
		&protocol.TrackAlter{Head: k.head(k.session), Name: k.name, Revision: 1, Config: config},
		&protocol.TrackRevision{})
	v := k.publish("one")
	if r := k.poll("sas-1", k.sas, 0, 0); r.Version != 0 || r.State != protocol.StateWaitingGate {
		t.Fatalf("before the gate a poll is answered %+v", r)
	}
	k.must(protocol.KindTrackWatch, k.at, &protocol.TrackWatch{Node: k.node, Name: k.name}, nil)
	var stands protocol.TrackStatus
	k.event(protocol.KindTrackStatus, &stands)
	if len(stands.Gates) != 1 || stands.Gates[0].Gate.Name != "smoke" || stands.Gates[0].Version != v || stands.Gates[0].Attempt != 1 {
		t.Fatalf("gates to be run: %+v", stands.Gates)
	}
	gate := protocol.TrackGateReport{Name: k.name, Location: "SAS", Version: v, Gate: "smoke", Attempt: 1, Outcome: protocol.GateSuccess}
	for _, change := range []func(*protocol.TrackGateReport){
		func(m *protocol.TrackGateReport) { m.Version++ }, func(m *protocol.TrackGateReport) { m.Gate = "other" },
		func(m *protocol.TrackGateReport) { m.Attempt++ },
	} {
		other := gate
		change(&other)
		other.Head = k.head(k.session)
		k.fails(protocol.StatusPreconditionFailed, protocol.KindTrackGateReport, k.at, &other)
	}
	gate.Head = k.head(k.session)
	k.must(protocol.KindTrackGateReport, k.at, &gate, nil)
	if r := k.poll("sas-1", k.sas, 0, 0); r.Version != v {
		t.Fatalf("behind the gate a poll is answered %+v", r)
	}
}

// TestRolloutRefusals: each wrong request has the status and the sentence that say what is wrong,
// and changes nothing.
func TestRolloutRefusals(t *testing.T) {
	s := start(t, func(c *Config) { c.Limits.MaxData = 1000 })
	k := newTrackKit(t, s)
	first := k.publish("one")
	k.poll("sas-1", k.sas, 0, 0)
	k.poll("sas-1", k.sas, 1, first)
	second := k.publish("two")
	k.poll("sas-1", k.sas, 2, first)
	if r := k.poll("sas-1", k.sas, 5, second); r.Version != second {
		t.Fatalf("%+v", r)
	}
	stranger := connect(t, s)
	foreign := stranger.session(k.node, 2).Session
	caller := protocol.TrackPoll{Session: k.session, Name: k.name, ID: "sas-1", Incarnation: k.sas}
	poll := func(change func(*protocol.TrackPoll)) protocol.Message {
		m := caller
		change(&m)
		return &m
	}
	config := func(change func(*protocol.TrackConfig)) protocol.Message {
		c := trackConfig()
		change(&c)
		return &protocol.TrackAlter{Head: k.head(k.session), Name: k.name, Revision: 1, Config: c}
	}
	admin := func(m protocol.TrackAdmin) protocol.Message {
		m.Head, m.Name = k.head(k.session), k.name
		return &m
	}
	other := []byte("geo/other")
	before := k.status()
	for _, x := range []struct {
		what string
		kind protocol.Kind
		m    protocol.Message
		want protocol.Status
		says string
	}{
		{"a track that is there", protocol.KindTrackCreate, &protocol.TrackCreate{Head: k.head(k.session), Name: k.name, Config: trackConfig()}, protocol.StatusAlreadyExists, "alter it"},
		{"an unknown track polled", protocol.KindTrackPoll, poll(func(m *protocol.TrackPoll) { m.Name = other }), protocol.StatusNotFound, "create it"},
		{"an unknown track altered", protocol.KindTrackAlter, &protocol.TrackAlter{Head: k.head(k.session), Name: other, Revision: 1, Config: trackConfig()}, protocol.StatusNotFound, "create it"},
		{"an unknown track deleted", protocol.KindTrackDelete, &protocol.TrackDelete{Head: k.head(k.session), Name: other}, protocol.StatusNotFound, "create it"},
		{"an unknown track described", protocol.KindTrackDescribe, &protocol.TrackDescribe{Node: k.node, Name: other}, protocol.StatusNotFound, "create it"},
		{"an unknown track watched", protocol.KindTrackWatch, &protocol.TrackWatch{Node: k.node, Name: other}, protocol.StatusNotFound, "create it"},
		{"an unknown node", protocol.KindTrackDescribe, &protocol.TrackDescribe{Node: 999, Name: k.name}, protocol.StatusNotFound, "node"},
		{"an unknown location registered", protocol.KindTrackRegister,
			&protocol.TrackRegister{Head: k.head(k.session), Name: k.name, ID: "x", Location: "ABC",
				Role: protocol.InstanceLeader}, protocol.StatusNotFound, "UNKNOWN_LOCATION"},
		{"an unknown location's history", protocol.KindTrackHistory, &protocol.TrackHistory{Node: k.node, Name: k.name, Location: "ABC"}, protocol.StatusNotFound, "UNKNOWN_LOCATION"},
		{"an unknown location watched", protocol.KindTrackWatch, &protocol.TrackWatch{Node: k.node, Name: k.name, Location: "ABC"}, protocol.StatusNotFound, "UNKNOWN_LOCATION"},
		{"an unknown location paused", protocol.KindTrackAdmin, admin(protocol.TrackAdmin{Verb: protocol.TrackPause, Locations: []string{"SAS", "ABC"}}), protocol.StatusNotFound, "UNKNOWN_LOCATION"},
		{"a foreign incarnation", protocol.KindTrackPoll, poll(func(m *protocol.TrackPoll) { m.Incarnation += 7 }), protocol.StatusBadSession, "FENCED"},
		{"a foreign incarnation's report", protocol.KindTrackReport,
			&protocol.TrackReport{Session: k.session, Name: k.name, ID: "sas-1", Incarnation: k.sas + 7,
				Report: protocol.UpdateReport{Seq: 9, Current: second}}, protocol.StatusBadSession, "FENCED"},
		{"an instance that is none", protocol.KindTrackPoll, poll(func(m *protocol.TrackPoll) { m.ID = "nobody" }), protocol.StatusNotFound, "register"},
		{"a session that is not here", protocol.KindTrackPoll, poll(func(m *protocol.TrackPoll) { m.Session = foreign }), protocol.StatusBadSession, "attach"},
		{"a stale report", protocol.KindTrackReport,
			&protocol.TrackReport{Session: k.session, Name: k.name, ID: "sas-1", Incarnation: k.sas,
				Report: protocol.UpdateReport{Seq: 4, Current: first, Target: first, Code: "OK"}},
			protocol.StatusPreconditionFailed, "STALE_REPORT"},
		{"a version that does not increase", protocol.KindTrackPublish, &protocol.TrackPublish{Head: k.head(k.session), Name: k.name, Version: second}, protocol.StatusBadRequest, "is not above 2"},
		{"a version that decreases", protocol.KindTrackPublish, &protocol.TrackPublish{Head: k.head(k.session), Name: k.name, Version: first}, protocol.StatusBadRequest, "is not above 2"},
		{"a version above all bounds", protocol.KindTrackPublish, &protocol.TrackPublish{Head: k.head(k.session), Name: k.name, Version: 1 << 63}, protocol.StatusBadRequest, "2^63-1"},
		{"a payload that is too long", protocol.KindTrackPublish, &protocol.TrackPublish{Head: k.head(k.session), Name: k.name, Payload: make([]byte, 1001)}, protocol.StatusBadRequest, "at most 1000"},
		{"a version that was never published", protocol.KindTrackWithdraw, &protocol.TrackWithdraw{Head: k.head(k.session), Name: k.name, Version: 77}, protocol.StatusNotFound, "published"},
		{"a rollback to what the history has not", protocol.KindTrackAdmin,
			admin(protocol.TrackAdmin{Verb: protocol.TrackRollback, Locations: []string{"SAS"}, Version: 77}),
			protocol.StatusPreconditionFailed, "history"},
		{"a rollback to what one of two locations has not", protocol.KindTrackAdmin,
			admin(protocol.TrackAdmin{Verb: protocol.TrackRollback, Locations: []string{"SAS", "MAN"},
				Version: first}), protocol.StatusPreconditionFailed, ""},
		{"a rollback upward", protocol.KindTrackAdmin, admin(protocol.TrackAdmin{Verb: protocol.TrackRollback, Locations: []string{"SAS"}, Version: second}), protocol.StatusPreconditionFailed, "below"},
		{"nothing to promote", protocol.KindTrackAdmin, admin(protocol.TrackAdmin{Verb: protocol.TrackPromote, Locations: []string{"SAS"}}), protocol.StatusPreconditionFailed, "promoted"},
		{"an unknown instance dropped", protocol.KindTrackAdmin, admin(protocol.TrackAdmin{Verb: protocol.TrackDrop, ID: "nobody"}), protocol.StatusNotFound, "instance"},
		{"a verb that is none", protocol.KindTrackAdmin, admin(protocol.TrackAdmin{Verb: 99}), protocol.StatusBadRequest, "verb"},
		{"a name twice", protocol.KindTrackAlter, config(func(c *protocol.TrackConfig) { c.Locations = append(c.Locations, c.Locations[0]) }), protocol.StatusBadRequest, "SAS"},
		{"an order that comes back to its first", protocol.KindTrackAlter, config(func(c *protocol.TrackConfig) {
			c.Locations = append(c.Locations, protocol.LocationConfig{Name: "VLA"}, c.Locations[0])
		}), protocol.StatusBadRequest, "SAS"},
		{"no location", protocol.KindTrackAlter, config(func(c *protocol.TrackConfig) { c.Locations = nil }), protocol.StatusBadRequest, "0 locations"},
		{"a source that is none", protocol.KindTrackAlter, config(func(c *protocol.TrackConfig) { c.Source = 9 }), protocol.StatusBadRequest, "source"},
		{"another revision", protocol.KindTrackAlter, &protocol.TrackAlter{Head: k.head(k.session), Name: k.name, Revision: 9, Config: trackConfig()}, protocol.StatusPreconditionFailed, "revision"},
		{"a track in use", protocol.KindTrackDelete, &protocol.TrackDelete{Head: k.head(k.session), Name: k.name}, protocol.StatusPreconditionFailed, "force"},
		{"a gate that nobody asked for", protocol.KindTrackGateReport, &protocol.TrackGateReport{Head: k.head(k.session), Name: k.name, Location: "SAS", Version: second, Gate: "g", Attempt: 1, Outcome: 1},
			protocol.StatusPreconditionFailed, "gate"},
		{"a version from outside, of a track that has none", protocol.KindTrackAdvance, &protocol.TrackAdvance{Head: k.head(k.session), Name: k.name, Expected: second, Version: 99},
			protocol.StatusPreconditionFailed, "source"},
		{"an unknown track advanced", protocol.KindTrackAdvance, &protocol.TrackAdvance{Head: k.head(k.session), Name: other, Version: 99}, protocol.StatusNotFound, "create it"},
		{"a cursor that is none", protocol.KindTrackList, &protocol.TrackList{Shard: k.host().ID(), Node: k.node, Cursor: make([]byte, 5000)}, protocol.StatusBadRequest, "cursor"},
		{"another shard's tracks", protocol.KindTrackList, &protocol.TrackList{Shard: k.host().ID() + 100, Node: k.node}, protocol.StatusWrongShard, "map"},
	} {
		err := k.call(x.kind, k.at, x.m, nil)
		if !errors.Is(err, x.want) || !strings.Contains(err.Error(), x.says) {
			t.Errorf("%s: answered %v, want %v that says %q", x.what, err, x.want, x.says)
		}
	}
	// Another live session does not get an id that is taken.
	m := &protocol.TrackRegister{Head: protocol.Head{Session: foreign, Seq: 1, Low: 1}, Name: k.name, ID: "sas-1",
		Location: "SAS", Role: protocol.InstanceLeader}
	if err := stranger.call(protocol.KindTrackRegister, k.at, m,
		nil); !errors.Is(err, protocol.StatusAlreadyExists) || !strings.Contains(err.Error(), "ALREADY_REGISTERED") {
		t.Errorf("an id that is taken was answered %v", err)
	}
	if err := k.call(protocol.KindTrackPoll, 1<<40, poll(func(*protocol.TrackPoll) {}), nil); !errors.Is(err, protocol.StatusWrongShard) {
		t.Errorf("a bucket that is nowhere was answered %v", err)
	}
	// A stale report with a poll is dropped, and the poll answered.
	if r := k.poll("sas-1", k.sas, 4, first); r.Version != second {
		t.Errorf("a poll with a stale report was answered %+v", r)
	}
	after := k.status()
	before.Index, before.Revision, before.Clock = after.Index, after.Revision, after.Clock
	if !reflect.DeepEqual(before, after) {
		t.Errorf("refusals changed\n%+v to\n%+v", before, after)
	}
	k.ping()
}

// TestSteadyPollsAreReads: polls that say nothing new leave no trace in the log, however many come.
func TestSteadyPollsAreReads(t *testing.T) {
	s := start(t, func(c *Config) { manual(c) }) // time stands still: a leader that finds itself late on a busy machine says so in its log
	k := newTrackKit(t, s)
	v := k.publish("one")
	k.poll("sas-1", k.sas, 0, 0)
	k.poll("sas-1", k.sas, 1, v)
	d := k.host()
	index := k.status().Index
	read := d.Requests().PollsRead.Load()
	const polls = 2000
	m := &protocol.TrackPoll{Session: k.session, Name: k.name, ID: "sas-1", Incarnation: k.sas,
		Report: protocol.UpdateReport{Seq: 1, Current: v, Target: v, Code: "OK", Attempts: 1}}
	for done := 0; done < polls; done += 100 {
		var b []byte
		first := k.nextID + 1
		for range 100 {
			k.nextID++
			b = protocol.AppendFrame(b, protocol.KindTrackPoll, k.nextID, k.at, m)
		}
		k.write(b)
		for id := first; id <= k.nextID; id++ {
			var r protocol.TrackPollReply
			if err := k.reply(protocol.KindTrackPoll, id, &r); err != nil || r.Version != v {
				t.Fatalf("%+v, %v", r, err)
			}
		}
	}
	if n := d.Requests().PollsRead.Load() - read; n != polls {
		t.Errorf("%d of %d polls were reads", n, polls)
	}
	if got := k.status().Index; got != index {
		t.Errorf("%d polls took the log from %d to %d", polls, index, got)
	}
}

// TestRolloutRights: instances need use, operators admin, observers read.
func TestRolloutRights(t *testing.T) {
	s := guarded(t, nil)
	root := adminClient(t, s, rootSecret)
	boss := as(t, s, rootSecret)
	k := &trackKit{raw: boss, name: []byte("geo/base")}
	k.node = boss.node()
	k.session = boss.session(k.node, 1).Session
	k.at = boss.bucket(k.node, string(k.name))
	k.must(protocol.KindTrackCreate, k.at,
		&protocol.TrackCreate{Head: k.head(k.session), Name: k.name, Config: trackConfig()},
		&protocol.TrackRevision{})
	secret := issue(t, root, "alice")
	var alice *raw
	await.True(t, "the token to be known", func() (known bool) {
		c, _, err := greet(t, s, secret)
		alice = c
		return err == nil
	})
	try := func(kind protocol.Kind, m protocol.Message) error { return alice.call(kind, k.at, m, nil) }
	forbidden := func(kind protocol.Kind, m protocol.Message) {
		t.Helper()
		if err := try(kind, m); !errors.Is(err, protocol.StatusForbidden) {
			t.Errorf("%v was answered %v", kind, err)
		}
	}
	permitted := func(kind protocol.Kind, make func() protocol.Message) {
		t.Helper()
		var err error
		await.True(t, "the right to count", func() bool {
			err = try(kind, make())
			return !errors.Is(err, protocol.StatusForbidden)
		})
		if err != nil {
			t.Errorf("%v with the right was answered %v", kind, err)
		}
	}
	look := []func() (protocol.Kind, protocol.Message){
		func() (protocol.Kind, protocol.Message) {
			return protocol.KindTrackDescribe, &protocol.TrackDescribe{Node: k.node, Name: k.name}
		},
		func() (protocol.Kind, protocol.Message) {
			return protocol.KindTrackHistory, &protocol.TrackHistory{Node: k.node, Name: k.name, Location: "SAS"}
		},
		func() (protocol.Kind, protocol.Message) {
			return protocol.KindTrackList, &protocol.TrackList{Shard: s.shardAt(0, k.at).ID(), Node: k.node}
		},
		func() (protocol.Kind, protocol.Message) {
			return protocol.KindTrackWatch, &protocol.TrackWatch{Node: k.node, Name: k.name}
		},
	}
	for _, f := range look {
		forbidden(f())
	}
	grant(t, root, "alice", "/default", "read")
	for _, f := range look {
		kind, m := f()
		permitted(kind, func() protocol.Message { return m })
	}
	session := alice.session(k.node, 2).Session
	register := func() protocol.Message {
		return &protocol.TrackRegister{Head: alice.head(session), Name: k.name, ID: "a", Location: "SAS", Role: protocol.InstanceLeader}
	}
	publish := func() protocol.Message { return &protocol.TrackPublish{Head: alice.head(session), Name: k.name} }
	pause := func() protocol.Message {
		return &protocol.TrackAdmin{Head: alice.head(session), Name: k.name, Verb: protocol.TrackPause}
	}
	forbidden(protocol.KindTrackRegister, register())
	forbidden(protocol.KindTrackPublish, publish())
	grant(t, root, "alice", "/default", "use")
	permitted(protocol.KindTrackRegister, register)
	permitted(protocol.KindTrackPublish, publish)
	forbidden(protocol.KindTrackAdmin, pause())
	forbidden(protocol.KindTrackDelete, &protocol.TrackDelete{Head: alice.head(session), Name: k.name, Force: true})
	forbidden(protocol.KindTrackAlter, &protocol.TrackAlter{Head: alice.head(session), Name: k.name, Revision: 1, Config: trackConfig()})
	forbidden(protocol.KindTrackCreate, &protocol.TrackCreate{Head: alice.head(session), Name: []byte("geo/mine"), Config: trackConfig()})
	grant(t, root, "alice", "/default", "admin")
	permitted(protocol.KindTrackAdmin, pause)
}

// TestRolloutWatchBounds: streams are bounded in number, closed with their connection or by
// request, and what a client does not read is not kept.
func TestRolloutWatchBounds(t *testing.T) {
	s := start(t, func(c *Config) { c.Limits.MaxStreams, c.Limits.MaxWatchers = 2, 3 })
	k := newTrackKit(t, s)
	d := k.host()
	watch := &protocol.TrackWatch{Node: k.node, Name: k.name}
	open := func(c *raw) (id uint64, err error) {
		id = c.send(protocol.KindTrackWatch, k.at, watch)
		return id, c.reply(protocol.KindTrackWatch, id, nil)
	}
	first, err := open(k.raw)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := open(k.raw); err != nil {
		t.Fatal(err)
	}
	if _, err := open(k.raw); !errors.Is(err, protocol.StatusOverloaded) || !strings.Contains(err.Error(), "limited to 2") {
		t.Errorf("a third stream of a connection was answered %v", err)
	}
	other := connect(t, s)
	if _, err := open(other); err != nil {
		t.Fatal(err)
	}
	if _, err := open(other); !errors.Is(err, protocol.StatusOverloaded) || !strings.Contains(err.Error(), "limited to 3") {
		t.Errorf("a fourth watcher of a track was answered %v", err)
	}
	k.must(protocol.KindUnwatch, k.at, &protocol.Unwatch{WatchID: first}, nil)
	if _, err := open(other); err != nil {
		t.Errorf("after one was closed another was answered %v", err)
	}
	_ = other.nc.Close()
	await.True(t, "the streams of a connection to go with it", func() bool { return d.Delivery().Tracks.Len() == 1 })

	// Of one location, and of what an instance needs, no more is told.
	narrow := connect(t, s)
	narrow.must(protocol.KindTrackWatch, k.at, &protocol.TrackWatch{Node: k.node, Name: k.name, Location: "MAN", Targets: true}, nil)
	narrow.event(protocol.KindTrackStatus, nil)
	v := k.publish("one")
	k.poll("sas-1", k.sas, 0, 0)
	k.poll("sas-1", k.sas, 1, v)
	await.True(t, "the second location to have it", func() bool { return k.poll("man-1", k.man, 0, 0).Version == v })
	for notified := false; !notified; {
		var m protocol.TrackEvents
		narrow.event(protocol.KindTrackEvents, &m)
		for _, e := range m.Events {
			switch {
			case e.Location != "MAN" || e.Kind != protocol.TrackEventTarget && e.State != protocol.StateReady:
				t.Fatalf("notified of %+v", e)
			case e.Kind == protocol.TrackEventTarget:
				notified = e.Version == v
			}
		}
	}
}

// TestRolloutBehind: a client that reads nothing gets the status again when it reads again, and
// what is kept for it meanwhile is bounded.
func TestRolloutBehind(t *testing.T) {
	s := start(t, func(c *Config) { c.Limits.OutSoft = transport.MinOutSoft })
	k := newTrackKit(t, s)
	slow := connect(t, s)
	slow.must(protocol.KindTrackWatch, k.at, &protocol.TrackWatch{Node: k.node, Name: k.name}, nil)
	slow.event(protocol.KindTrackStatus, nil)
	// What is not read fills the sockets' buffers first.
	stands := func() bool { return k.host().Delivery().Tracks.Waiting() > 0 }
	for !stands() {
		for range 200 {
			m := &protocol.TrackAdmin{Head: k.head(k.session), Name: k.name, Verb: protocol.TrackPause}
			if k.seq%2 == 0 {
				m.Verb = protocol.TrackResume
			}
			k.send(protocol.KindTrackAdmin, k.at, m)
		}
		for id := k.nextID - 199; id <= k.nextID; id++ {
			if err := k.reply(protocol.KindTrackAdmin, id, nil); err != nil {
				t.Fatal(err)
			}
		}
	}
	v := k.publish("last")
	k.poll("sas-1", k.sas, 0, 0)
	var m protocol.TrackStatus
	for m.Last != v {
		slow.event(protocol.KindTrackStatus, &m)
	}
	slow.ping()
}

// TestRolloutMetrics: how tracks stand and what was decided is in the metrics, in a bounded number
// of series, and in the audit log with its reason.
func TestRolloutMetrics(t *testing.T) {
	file := filepath.Join(t.TempDir(), "audit.log")
	s := start(t, func(c *Config) { c.Audit = file })
	k := newTrackKit(t, s)
	config := trackConfig()
	config.ReelectMinInterval = 1
	k.must(protocol.KindTrackAlter, k.at,
		&protocol.TrackAlter{Head: k.head(k.session), Name: k.name, Revision: 1, Config: config},
		&protocol.TrackRevision{})
	v := k.publish("one")
	k.poll("sas-1", k.sas, 0, 0)
	read := func() string {
		var out bytes.Buffer
		s.metrics.WritePrometheus(&out)
		return out.String()
	}
	has := func(lines ...string) {
		t.Helper()
		all := read()
		for _, l := range lines {
			if !strings.Contains(all, l) {
				t.Errorf("metrics lack %s", l)
			}
		}
	}
	of := func(location string) string {
		return fmt.Sprintf(`{node="/default",track="geo/base",location="%s"}`, location)
	}
	has("signalbox_rollout_target"+of("SAS")+" 1\n", "signalbox_rollout_leaders"+of("SAS")+" 1\n",
		"signalbox_rollout_converged"+of("SAS")+" 0\n",
		`signalbox_rollout_blocked_by{node="/default",track="geo/base",location="SAS",blocker="sas-1"} 1`,
		"signalbox_rollout_target"+of("MAN")+" 0\n",
		`signalbox_rollout_targets_total{node="/default",track="geo/base",location="SAS",reason="initial"} 1`,
		"signalbox_rollout_series_truncated 0\n",
		`path="log"} `, `signalbox_requests_total{kind="track_poll",status="OK"} 1`)
	bad := &protocol.TrackPoll{Session: k.session, Name: k.name, ID: "sas-1", Incarnation: k.sas,
		Report: protocol.UpdateReport{Seq: 1, Target: v, Code: "TimestampOutOfRange", Attempts: 1}}
	k.must(protocol.KindTrackPoll, k.at, bad, &protocol.TrackPollReply{})
	has("signalbox_rollout_reelection_pending" + of("SAS") + " 1\n")
	second := k.publish("two")
	await.True(t, "the bad version to be replaced", func() bool { return k.poll("sas-1", k.sas, 0, 0).Version == second })
	has(`reason="reelect-explicit"} 1`)
	k.must(protocol.KindTrackAdmin, k.at, &protocol.TrackAdmin{Head: k.head(k.session), Name: k.name, Verb: protocol.TrackPause}, nil)
	s.metrics.SetMaxSeries(12)
	has("signalbox_rollout_series_truncated 1\n")

	audited(t, s, file,
		`"title":"ask_create_rollout","message":"a new rollout is asked for","severity":"low","initiator":"anonymous"`,
		`"title":"rollout_published"`, `"title":"rollout_target"`, `"location":"SAS","version":1,"reason":"initial"`,
		`"title":"rollout_skip"`,
		`"version":2,"from":1,"reason":"reelect-explicit"`, `"title":"ask_admin_rollout"`, `"verb":"pause"`, `"title":"rollout_admin"`,
	)
}
