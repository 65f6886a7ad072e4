package integration

import (
	"bytes"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server"
	"github.com/signalbox-dev/signalbox/server/servertest/await"
	"github.com/signalbox-dev/signalbox/server/shardhost"
	"github.com/signalbox-dev/signalbox/shard"
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

func newTrackKit(t *testing.T, s *instance) *trackKit {
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

// moveStep takes a step of a move of the track's bucket, as a plan's leader does.
func (k *trackKit) moveStep(kind shard.CommandKind, epoch uint64) {
	k.t.Helper()
	run := shard.BucketsBody{Total: k.s.Config.Buckets, First: uint32(k.at), Count: 1, Epoch: epoch}
	err := k.host().Replica().ProposeInternal(k.t.Context(),
		shard.Command{Kind: kind, Body: shard.AppendBuckets(nil, run)})
	if err != nil {
		k.t.Fatal(err)
	}
}

// host is where the track is.
func (k *trackKit) host() *shardhost.Shard { return k.s.shardAt(0, k.at) }

// TestRolloutServed: a version goes through both locations, and every request that there is is
// answered.
func TestRolloutServed(t *testing.T) {
	t.Parallel()
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
	admin(protocol.TrackAdmin{Verb: protocol.TrackEvict, ID: "man-1"})
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
	t.Parallel()
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

// TestSteadyPollsAreReads: polls that say nothing new leave no trace in the log, however many come.
func TestSteadyPollsAreReads(t *testing.T) {
	t.Parallel()
	s := start(t, func(c *server.Config) { manual(c) }) // time stands still: a leader that finds itself late on a busy machine says so in its log
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

// TestRolloutSeries: series of tracks that are left out are told of, and a track that is deleted
// makes room for the targets of others.
func TestRolloutSeries(t *testing.T) {
	t.Parallel()
	s := start(t, func(c *server.Config) { c.Limits.MaxSeries, c.Shards = 2, 1 })
	k := newTrackKit(t, s)
	created := func(name string) *trackKit {
		x := *k
		x.name = []byte(name)
		x.at = k.bucket(k.node, name)
		k.must(protocol.KindTrackCreate, x.at, &protocol.TrackCreate{Head: k.head(k.session), Name: x.name, Config: protocol.TrackConfig{
			Source: protocol.SourcePublished, Locations: []protocol.LocationConfig{{Name: "SAS"}}}}, &protocol.TrackRevision{})
		return &x
	}
	created("geo/alpha")
	other := created("geo/other")
	metrics := func(lines ...string) {
		t.Helper()
		var out bytes.Buffer
		s.Metrics.WritePrometheus(&out)
		for _, l := range lines {
			l, without := strings.CutPrefix(l, "no ")
			if strings.Contains(out.String(), l) == without {
				t.Errorf("metrics: want %v of %s", !without, l)
			}
		}
	}
	s.Metrics.SetMaxSeries(10) // of the first track alone
	metrics(`signalbox_rollout_target{node="/default",track="geo/alpha",location="SAS"} 0`,
		"no "+`signalbox_rollout_target{node="/default",track="geo/other"`, "signalbox_rollout_series_truncated 1\n")
	s.Metrics.SetMaxSeries(1000)
	metrics("signalbox_rollout_series_truncated 0\n")

	v := k.publish("one")
	k.poll("sas-1", k.sas, 0, 0)
	k.poll("sas-1", k.sas, 1, v)
	await.True(t, "the second location to have it", func() bool { return k.poll("man-1", k.man, 0, 0).Version == v })
	sas := other.register("sas-1", "SAS")
	v = other.publish("one")
	other.poll("sas-1", sas, 0, 0)
	targets := func(track, reason string) string {
		return fmt.Sprintf(`signalbox_rollout_targets_total{node="/default",track="%s",location="SAS",reason="%s"} 1`, track, reason)
	}
	metrics(targets("geo/base", "initial"), "no "+targets("geo/other", "initial"), "signalbox_rollout_series_truncated 1\n")

	// A move of its bucket that is given up is no end of a track.
	k.moveStep(shard.CmdFreeze, 100)
	metrics()
	k.moveStep(shard.CmdActivate, 101)
	metrics(targets("geo/base", "initial"))

	k.must(protocol.KindTrackDelete, k.at, &protocol.TrackDelete{Head: k.head(k.session), Name: k.name, Force: true}, nil)
	metrics("no "+targets("geo/base", "initial"), "signalbox_rollout_series_truncated 1\n")
	other.publish("two")
	other.poll("sas-1", sas, 1, v)
	metrics(targets("geo/other", "advance"), "signalbox_rollout_series_truncated 0\n")
}

// TestRolloutMetrics: how tracks stand and what was decided is in the metrics, in a bounded number
// of series, and in the audit log with its reason.
func TestRolloutMetrics(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "audit.log")
	s := start(t, func(c *server.Config) { c.Audit = file })
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
		s.Metrics.WritePrometheus(&out)
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
	s.Metrics.SetMaxSeries(12)
	has("signalbox_rollout_series_truncated 1\n")

	audited(t, s, file,
		`"title":"ask_create_rollout","message":"rollout creation requested","severity":"low","initiator":"anonymous"`,
		`"title":"rollout_published"`, `"title":"rollout_target"`, `"location":"SAS","version":1,"reason":"initial"`,
		`"title":"rollout_skip"`,
		`"version":2,"from":1,"reason":"reelect-explicit"`, `"title":"ask_admin_rollout"`, `"verb":"pause"`, `"title":"rollout_admin"`,
	)
}
