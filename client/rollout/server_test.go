package rollout_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	sdk "github.com/signalbox-dev/signalbox/client/rollout"
	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server/servertest"
	"github.com/signalbox-dev/signalbox/server/servertest/await"
)

// site is a track on a real server, whose clock moves when it is told to.
type site struct {
	t       *testing.T
	srv     *servertest.Server
	addrs   []string
	ctx     context.Context
	track   *sdk.Track
	clients []*client.Client // of sessions, in the order in which they were asked for
}

func newSite(t *testing.T, c sdk.Config) *site {
	t.Helper()
	x := &site{t: t, srv: servertest.Start(t), ctx: t.Context()}
	x.addrs = []string{x.srv.Addr()}
	x.track = sdk.NewTrack(x.session(), "geo/base")
	if _, err := x.track.Create(x.ctx, c); err != nil {
		t.Fatal(err)
	}
	return x
}

func threeLocations() sdk.Config {
	return sdk.Config{Source: sdk.Published, ReelectMinInterval: time.Millisecond, Locations: []sdk.Location{
		{Name: "SAS"}, {Name: "MAN", Delay: 5 * time.Second}, {Name: "VLA", Delay: 5 * time.Second},
	}}
}

func (x *site) config() client.Config { return client.Config{Endpoints: x.addrs} }

func (x *site) session() *client.Session {
	x.t.Helper()
	c, err := client.Open(x.ctx, x.config())
	if err != nil {
		x.t.Fatal(err)
	}
	x.t.Cleanup(func() { _ = c.Close() })
	x.clients = append(x.clients, c)
	s, err := c.Session(x.ctx, "/default", longSession...)
	if err != nil {
		x.t.Fatal(err)
	}
	return s
}

func (x *site) publish() uint64 {
	x.t.Helper()
	v, err := x.track.Publish(x.ctx, 0, []byte("payload"))
	if err != nil {
		x.t.Fatal(err)
	}
	return v
}

func (x *site) status() *sdk.Status {
	x.t.Helper()
	s, err := x.track.Describe(x.ctx, sdk.IncludeInstances(), sdk.IncludeConfig())
	if err != nil {
		x.t.Fatal(err)
	}
	return s
}

func (x *site) history(location string) []sdk.HistoryEntry {
	x.t.Helper()
	rows, err := x.track.History(x.ctx, location)
	if err != nil {
		x.t.Fatal(err)
	}
	return rows
}

// until waits for what comes by itself.
func (x *site) until(what string, so func() bool) {
	x.t.Helper()
	await.Seen(x.t, what, func() (track *sdk.Status, holds bool) {
		if !so() {
			return x.status(), false
		}
		return nil, true
	})
}

// converged waits until all leaders of a location have a version, and one of them has asked since:
// from then on bake times count.
func (x *site) converged(location string, version uint64) {
	x.t.Helper()
	x.until(fmt.Sprintf("%s to have %d", location, version), func() bool {
		for _, l := range x.status().Locations {
			if l.Name == location {
				return l.Target == version && l.Counted > 0 && l.Reached == l.Counted && l.State != sdk.Ready
			}
		}
		return false
	})
}

// follow runs a follower until the test ends, or the function that is returned is called.
func (x *site) follow(id, location, dir string, update func(context.Context, sdk.Version) error) (stop func()) {
	x.t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(x.ctx))
	f, err := sdk.NewFollower(sdk.FollowerOptions{
		Connect: x.config(), Node: "/default", Track: "geo/base", ID: id, Location: location, Dir: dir,
		Update: update, Session: longSession,
		RetryMin: time.Millisecond, RetryMax: 5 * time.Millisecond,
	})
	if err != nil {
		x.t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- f.Run(ctx) }()
	var once sync.Once
	stop = func() { once.Do(func() { cancel(); <-ended }) }
	x.t.Cleanup(stop)
	return stop
}

// TestServerThreeLocations: SAS at once, MAN 5 s after SAS, VLA 5 s after MAN, for nine followers
// on a real server; a version that cannot be loaded goes no further than SAS.
func TestServerThreeLocations(t *testing.T) {
	t.Parallel()
	x := newSite(t, threeLocations())
	const bad = 2
	var mu sync.Mutex
	loaded := map[string][]uint64{}
	for _, location := range []string{"SAS", "MAN", "VLA"} {
		for i := range 3 {
			id := fmt.Sprintf("%s-%d", location, i)
			x.follow(id, location, "", func(_ context.Context, v sdk.Version) error {
				mu.Lock()
				defer mu.Unlock()
				loaded[location] = append(loaded[location], v.Number)
				if v.Number == bad {
					return sdk.Code("TimestampOutOfRange", errors.New("no such snapshot"))
				}
				return nil
			})
		}
	}
	x.until("nine instances", func() bool { return x.status().NumInstances == 9 })
	for range 3 {
		v := x.publish()
		if v == bad {
			x.until("the bad version to be given up", func() bool { return x.status().Locations[0].State == sdk.ReelectionPending })
			continue
		}
		x.srv.Advance(10 * time.Millisecond) // re-elections have a least distance
		x.converged("SAS", v)
		x.srv.Advance(4 * time.Second)
		if got := x.status().Locations[1].Target; got == v {
			t.Fatalf("MAN has %d before its time", v)
		}
		x.srv.Advance(2 * time.Second)
		x.converged("MAN", v)
		x.srv.Advance(2 * time.Second) // it was chosen within the two seconds before
		if got := x.status().Locations[2].Target; got == v {
			t.Fatalf("VLA has %d before its time", v)
		}
		x.srv.Advance(4 * time.Second)
		x.converged("VLA", v)
	}
	mu.Lock()
	defer mu.Unlock()
	for _, location := range []string{"MAN", "VLA"} {
		if slices.Contains(loaded[location], bad) {
			t.Errorf("%s was to load the bad version: %v", location, loaded[location])
		}
	}
	sas, man, vla := x.history("SAS"), x.history("MAN"), x.history("VLA")
	if len(sas) != 3 || !sas[1].Skip || sas[2].Reason != protocol.ReasonExplicit {
		t.Errorf("history of SAS %+v", sas)
	}
	for _, pair := range [][2][]sdk.HistoryEntry{{sas, man}, {man, vla}} {
		if len(pair[1]) != 2 {
			t.Fatalf("history %+v", pair[1])
		}
		for _, r := range pair[1] {
			i := slices.IndexFunc(pair[0], func(p sdk.HistoryEntry) bool { return p.Version == r.Version })
			if i < 0 || pair[0][i].Age-r.Age < 5*time.Second {
				t.Errorf("%+v follows %+v", r, pair[0])
			}
		}
	}
}

// TestServerListsStalled: a list says of each location what the track's own status says, as soon as
// time alone has made one stall.
func TestServerListsStalled(t *testing.T) {
	t.Parallel()
	x := newSite(t, threeLocations())
	s := x.session()
	reader := s.Node()
	i, err := sdk.NewTrack(s, "geo/base").Register(x.ctx, sdk.Registration{ID: "a", Location: "SAS", Role: sdk.LeaderRole})
	if err != nil {
		t.Fatal(err)
	}
	x.publish()
	if _, err := i.GetTargetState(x.ctx, nil, false); err != nil {
		t.Fatal(err)
	}
	states := func() (list []sdk.State) {
		t.Helper()
		for info, err := range sdk.List(x.ctx, reader, "geo/") {
			if err != nil || info.Track != "geo/base" || info.Locations != 3 || info.Instances != 1 {
				t.Fatalf("%+v, %v", info, err)
			}
			list = append(list, info.States...)
		}
		return list
	}
	for _, want := range []sdk.State{sdk.Converging, sdk.Stalled} {
		s := x.status()
		own := []sdk.State{s.Locations[0].State, s.Locations[1].State, s.Locations[2].State}
		if got := states(); !slices.Equal(got, own) || own[0] != want {
			t.Errorf("the list says %v, and the status %v; SAS is to be %s", got, own, want)
		}
		x.srv.Advance(11 * time.Minute)
	}
}

// TestServerRefusals: whatever is wrong has its named error, and changes nothing.
func TestServerRefusals(t *testing.T) {
	t.Parallel()
	x := newSite(t, threeLocations())
	ctx := x.ctx
	me, other := x.session(), x.session()
	mine, theirs := sdk.NewTrack(me, "geo/base"), sdk.NewTrack(other, "geo/base")
	i, err := mine.Register(ctx, sdk.Registration{ID: "a", Location: "SAS", Role: sdk.LeaderRole})
	if err != nil {
		t.Fatal(err)
	}
	first := x.publish()
	for _, current := range []uint64{0, first} {
		if _, err := i.GetTargetState(ctx, &sdk.Report{Current: current, Target: current, Code: sdk.CodeOK}, false); err != nil {
			t.Fatal(err)
		}
	}
	second := x.publish()
	x.until("the second version", func() bool {
		got, err := i.GetTargetState(ctx, nil, true)
		return err == nil && got.Version == second && string(got.Payload) == "payload"
	})
	if _, err := i.GetTargetState(ctx, &sdk.Report{Current: second, Target: second, Code: sdk.CodeOK, Attempts: 1}, false); err != nil {
		t.Fatal(err)
	}
	before := x.status()
	refused := func(what string, err, want error) {
		t.Helper()
		if !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", what, err, want)
		}
	}
	call := func(_ any, err error) error { return err }
	nowhere := sdk.NewTrack(me, "geo/nowhere")
	refused("an unknown track described", call(nowhere.Describe(ctx)), protocol.StatusNotFound)
	refused("an unknown track registered in", call(nowhere.Register(ctx, sdk.Registration{ID: "a", Location: "SAS"})),
		protocol.StatusNotFound)
	refused("an unknown track published to", call(nowhere.Publish(ctx, 0, nil)), protocol.StatusNotFound)
	for _, err := range nowhere.Watch(ctx, "") {
		refused("an unknown track watched", err, protocol.StatusNotFound)
	}
	for _, err := range mine.Watch(ctx, "ABC") {
		refused("an unknown location watched", err, sdk.ErrUnknownLocation)
	}
	refused("an unknown location registered", call(mine.Register(ctx, sdk.Registration{ID: "b", Location: "ABC"})), sdk.ErrUnknownLocation)
	refused("an unknown location's history", call(mine.History(ctx, "ABC")), sdk.ErrUnknownLocation)
	refused("an unknown location paused", mine.Pause(ctx, false, "SAS", "ABC"), sdk.ErrUnknownLocation)
	refused("a taken id", call(theirs.Register(ctx, sdk.Registration{ID: "a", Location: "SAS"})), sdk.ErrAlreadyRegistered)
	refused("a version that decreases", call(mine.Publish(ctx, first, nil)), protocol.StatusBadRequest)
	refused("a version that is the same", call(mine.Publish(ctx, second, nil)), protocol.StatusBadRequest)
	refused("a rollback to a version not in the history", mine.Rollback(ctx, 77, "SAS"), protocol.StatusPreconditionFailed)
	refused("a rollback of which one location knows nothing", mine.Rollback(ctx, first, "SAS", "VLA"), protocol.StatusPreconditionFailed)
	twice := threeLocations()
	twice.Locations = append(twice.Locations, sdk.Location{Name: "SAS"})
	refused("a config with a loop", call(mine.Alter(ctx, 1, twice)), protocol.StatusBadRequest)
	refused("a config with a double name", call(mine.Alter(ctx, 1, sdk.Config{Source: sdk.Published,
		Locations: []sdk.Location{{Name: "A"}, {Name: "A"}}})), protocol.StatusBadRequest)
	refused("a config of another revision", call(mine.Alter(ctx, 7, threeLocations())), protocol.StatusPreconditionFailed)
	refused("a track that is there", call(mine.Create(ctx, threeLocations())), protocol.StatusAlreadyExists)
	refused("a track in use deleted", mine.Delete(ctx, false), protocol.StatusPreconditionFailed)
	refused("an instance dropped that is none", mine.Evict(ctx, "b"), protocol.StatusNotFound)
	after := x.status()
	for k := range after.Locations {
		a, b := &after.Locations[k], &before.Locations[k]
		if a.Target != b.Target || a.Generation != b.Generation || a.Reached != b.Reached || a.Paused != b.Paused || a.State != b.State {
			t.Errorf("refusals changed %+v to %+v", b, a)
		}
	}
	if after.NumInstances != 1 || after.ConfigRevision != 1 || after.Last != second {
		t.Errorf("refusals changed the track to %+v", after)
	}

	// Another registration of the id fences the first one.
	now, err := theirs.Register(ctx, sdk.Registration{ID: "a", Location: "SAS", Role: sdk.LeaderRole, Takeover: true})
	if err != nil {
		t.Fatal(err)
	}
	refused("a foreign incarnation", call(i.GetTargetState(ctx, nil, false)), sdk.ErrFenced)
	refused("a foreign incarnation's role", i.SetRole(ctx, sdk.FollowerRole), sdk.ErrFenced)
	refused("a foreign incarnation's end", i.Unregister(ctx), sdk.ErrFenced)
	if got, err := now.GetTargetState(ctx, nil, false); err != nil || got.Version != second {
		t.Errorf("who took over is answered %+v, %v", got, err)
	}
	if err := mine.Delete(ctx, true); err != nil {
		t.Fatal(err)
	}
	refused("an instance of a deleted track", call(now.GetTargetState(ctx, nil, false)), protocol.StatusNotFound)
}

// TestServerRegisteredAgain: the same registration again is the same instance. It is heard, however
// often the first one has reported.
func TestServerRegisteredAgain(t *testing.T) {
	t.Parallel()
	x := newSite(t, sdk.Config{Source: sdk.Published, Locations: []sdk.Location{{Name: "SAS"}}})
	track := sdk.NewTrack(x.session(), "geo/base")
	version := x.publish()
	register := func() *sdk.Instance {
		i, err := track.Register(x.ctx, sdk.Registration{ID: "a", Location: "SAS", Role: sdk.LeaderRole})
		if err != nil {
			t.Fatal(err)
		}
		return i
	}
	ask := func(i *sdk.Instance, r sdk.Report) {
		t.Helper()
		if _, err := i.GetTargetState(x.ctx, &r, false); err != nil {
			t.Fatal(err)
		}
	}
	first := register()
	for n := range 5 {
		ask(first, sdk.Report{Target: version, Code: sdk.CodeSourceError, Attempts: uint64(n)})
	}
	ask(register(), sdk.Report{Current: version, Target: version, Code: sdk.CodeOK})
	if l := x.status().Locations[0]; l.Target != version || l.Reached != 1 {
		t.Errorf("the location is %+v", l)
	}
}

// TestServerAwayAndBack: a follower whose server is gone keeps what it has; started again it loads
// that first, and takes its id over when the server is back.
func TestServerAwayAndBack(t *testing.T) {
	t.Parallel()
	x := newSite(t, sdk.Config{Source: sdk.Published, Locations: []sdk.Location{{Name: "SAS"}}})
	dir := t.TempDir()
	versions := make(chan sdk.Version, 16)
	update := func(_ context.Context, v sdk.Version) error {
		versions <- v
		return nil
	}
	next := func(number uint64, kept bool) {
		t.Helper()
		select {
		case v := <-versions:
			if v.Number != number || v.Restored != kept || string(v.Payload) != "payload" {
				t.Fatalf("was to load %+v, want %d", v, number)
			}
		case <-time.After(await.Limit):
			t.Fatalf("version %d did not come: %+v", number, x.status())
		}
	}
	stop := x.follow("a", "SAS", dir, update)
	first := x.publish()
	next(first, false)
	x.converged("SAS", first)
	x.srv.Unreachable()
	stop()
	x.follow("a", "SAS", dir, update)
	next(first, true)
	x.srv.Reachable()
	second := x.publish()
	next(second, false)
	x.converged("SAS", second)
	if n := x.status().NumInstances; n != 1 {
		t.Errorf("%d instances", n)
	}
}

// TestServerWatchTarget: an instance that watches is told each target, also one that time brings,
// and asks the server for nothing in between.
func TestServerWatchTarget(t *testing.T) {
	t.Parallel()
	x := newSite(t, sdk.Config{Source: sdk.Published, Locations: []sdk.Location{{Name: "SAS"}, {Name: "MAN", Delay: time.Minute}}})
	sas, err := x.track.Register(x.ctx, sdk.Registration{ID: "a", Location: "SAS", Role: sdk.LeaderRole})
	if err != nil {
		t.Fatal(err)
	}
	man, err := x.track.Register(x.ctx, sdk.Registration{ID: "b", Location: "MAN", Role: sdk.LeaderRole})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(x.ctx)
	targets := make(chan sdk.Target)
	done := make(chan error, 1)
	go func() {
		for now, err := range man.WatchTarget(ctx) {
			if err != nil {
				done <- err
				return
			}
			targets <- now
		}
	}()
	next := func() sdk.Target {
		t.Helper()
		select {
		case now := <-targets:
			return now
		case err := <-done:
			t.Fatal(err)
		case <-time.After(await.Limit):
			t.Fatalf("no target came: %+v", x.status())
		}
		return sdk.Target{}
	}
	if now := next(); now.Version != 0 {
		t.Fatalf("before there is a version: %+v", now)
	}
	v := x.publish()
	if now, err := sas.GetTargetState(x.ctx, nil, false); err != nil || now.Version != v {
		t.Fatalf("%+v, %v", now, err)
	}
	x.srv.Advance(time.Minute + time.Second)
	if now := next(); now.Version != v {
		t.Fatalf("after the delay: %+v", now)
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// TestServerGates: bake time, a gate with each of its outcomes, and a share of the instances first,
// between two locations of a real server.
func TestServerGates(t *testing.T) {
	t.Parallel()
	x := newSite(t, sdk.Config{Source: sdk.Published, Locations: []sdk.Location{
		{Name: "SAS", Bake: time.Minute},
		{Name: "MAN", Share: 50, ShareBake: time.Minute, Gates: []sdk.Gate{{Name: "alerts", Kind: sdk.Webhook, Spec: "http://alerts/quiet", Timeout: time.Hour, Retry: time.Minute}}},
	}})
	loaded := func(context.Context, sdk.Version) error { return nil }
	for _, i := range []struct{ id, location string }{{"sas-1", "SAS"}, {"man-1", "MAN"}, {"man-2", "MAN"}} {
		x.follow(i.id, i.location, "", loaded)
	}
	outcomes := make(chan sdk.Outcome) // of the runs that the keeper asks about
	runs := make(chan sdk.GateRun)
	ctx, cancel := context.WithCancel(x.ctx)
	check := func(ctx context.Context, run sdk.GateRun) (sdk.Outcome, string) {
		select {
		case runs <- run:
			return <-outcomes, "so it is"
		case <-ctx.Done():
			return sdk.Inconclusive, "stopped"
		}
	}
	keeper := sdk.Gatekeeper{Track: sdk.NewTrack(x.session(), "geo/base"), Check: check}
	ended := make(chan error, 1)
	go func() { ended <- keeper.Run(ctx) }()
	defer func() { cancel(); <-ended }()
	man := func() sdk.LocationStatus { return x.status().Locations[1] }
	run := func(version, attempt uint64, o sdk.Outcome) {
		t.Helper()
		select {
		case r := <-runs:
			if r.Version != version || r.Attempt != attempt || r.Location != "MAN" || r.Gate.Name != "alerts" ||
				r.Gate.Kind != sdk.Webhook {
				t.Fatalf("asked for %+v", r)
			}
			outcomes <- o
		case <-time.After(await.Limit):
			t.Fatalf("no gate was to be run: %+v", x.status())
		}
	}

	// The first version: after the bake time, when the gate says so at the second attempt; to all
	// at once, for there is nothing to keep.
	first := x.publish()
	x.converged("SAS", first)
	x.srv.Advance(30 * time.Second)
	if s := man(); s.Target != 0 || s.GateFor != 0 {
		t.Fatalf("before the bake time is over %+v", s)
	}
	x.srv.Advance(31 * time.Second)
	run(first, 1, sdk.Inconclusive)
	x.until("the gate to wait", func() bool { return man().State == sdk.WaitingGate && len(x.status().Gates) == 0 })
	x.srv.Advance(61 * time.Second)
	run(first, 2, sdk.Success)
	x.converged("MAN", first)
	x.until("both to be leaders", func() bool { return man().Leaders == 2 })

	// The second one fails, and never comes; the third one goes to half of the leaders first.
	second := x.publish()
	x.converged("SAS", second)
	x.srv.Advance(61 * time.Second)
	run(second, 1, sdk.Failure)
	x.until("the failure to count", func() bool { return man().GateFor == 0 })
	third := x.publish()
	x.converged("SAS", third)
	x.srv.Advance(61 * time.Second)
	run(third, 1, sdk.Success)
	x.until("the share to have it", func() bool {
		s := man()
		return s.State == sdk.WaitingShare && s.Target == third && s.Stable == first && s.Counted == 1 && s.Reached == 1
	})
	x.srv.Advance(61 * time.Second)
	x.until("all to have it", func() bool {
		s := man()
		return s.Target == third && s.Stable == 0 && s.Counted == 2 && s.Reached == 2
	})
	if rows := x.history("MAN"); len(rows) != 2 || rows[0].Version != first || rows[1].Version != third {
		t.Errorf("history %+v", rows)
	}
}
