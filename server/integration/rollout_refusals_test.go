package integration

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server"
	"github.com/signalbox-dev/signalbox/server/servertest/await"
)

// TestRolloutRefusals: each wrong request has the status and the sentence that say what is wrong,
// and changes nothing.
func TestRolloutRefusals(t *testing.T) {
	t.Parallel()
	s := start(t, func(c *server.Config) { c.Limits.MaxData = 1000 })
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
		{"an unknown track polled", protocol.KindTrackPoll, poll(func(m *protocol.TrackPoll) { m.Name = other }), protocol.StatusNotFound, "there is no such rollout"},
		{"an unknown track altered", protocol.KindTrackAlter, &protocol.TrackAlter{Head: k.head(k.session), Name: other, Revision: 1, Config: trackConfig()}, protocol.StatusNotFound, "there is no such rollout"},
		{"an unknown track deleted", protocol.KindTrackDelete, &protocol.TrackDelete{Head: k.head(k.session), Name: other}, protocol.StatusNotFound, "there is no such rollout"},
		{"an unknown track described", protocol.KindTrackDescribe, &protocol.TrackDescribe{Node: k.node, Name: other}, protocol.StatusNotFound, "there is no such rollout"},
		{"an unknown track watched", protocol.KindTrackWatch, &protocol.TrackWatch{Node: k.node, Name: other}, protocol.StatusNotFound, "there is no such rollout"},
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
		{"an unknown instance dropped", protocol.KindTrackAdmin, admin(protocol.TrackAdmin{Verb: protocol.TrackEvict, ID: "nobody"}), protocol.StatusNotFound, "instance"},
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
		{"an unknown track advanced", protocol.KindTrackAdvance, &protocol.TrackAdvance{Head: k.head(k.session), Name: other, Version: 99}, protocol.StatusNotFound, "there is no such rollout"},
		{"a cursor that is none", protocol.KindTrackList, &protocol.TrackList{Shard: k.host().ID(), Node: k.node, Cursor: make([]byte, 5000)}, protocol.StatusBadRequest, "cursor"},
		{"another shard's tracks", protocol.KindTrackList, &protocol.TrackList{Shard: k.host().ID() + 100, Node: k.node}, protocol.StatusWrongShard, "map"},
	} {
		err := k.call(x.kind, k.at, x.m, nil)
		if !errors.Is(err, x.want) || !strings.Contains(err.Error()+" "+protocol.RefusalOf(err).String(), x.says) {
			t.Errorf("%s: answered %v, want %v that says %q", x.what, err, x.want, x.says)
		}
	}
	// Another live session does not get an id that is taken.
	m := &protocol.TrackRegister{Head: protocol.Head{Session: foreign, Seq: 1, Low: 1}, Name: k.name, ID: "sas-1",
		Location: "SAS", Role: protocol.InstanceLeader}
	if err := stranger.call(protocol.KindTrackRegister, k.at, m,
		nil); protocol.RefusalOf(err) != protocol.RefusalAlreadyRegistered {
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

// TestRolloutRights: instances need use, operators admin, observers read.
func TestRolloutRights(t *testing.T) {
	t.Parallel()
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
