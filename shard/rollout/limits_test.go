package rollout

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/signalbox-dev/signalbox/protocol"
)

// TestInstancesOfATrack: as many instances as the limit says, and not one more; one that takes its
// own place, or that leaves, is no more.
func TestInstancesOfATrack(t *testing.T) {
	x, now, callers, _ := steadyTrack(t, MaxInstances)
	var out Events
	join := func(session uint64, id string) error {
		_, err := x.Register(now,
			Registration{Session: session, ID: id, Location: "SAS", Role: protocol.InstanceFollower, Meta: "again"},
			&out)
		return err
	}
	if err := join(1, "one more"); !errors.Is(err, ErrTooManyInstances) {
		t.Errorf("one past the limit: %v", err)
	}
	if err := join(callers[7].Session, callers[7].ID); err != nil {
		t.Errorf("one that is there already: %v", err)
	}
	if err := x.Unregister(now, callers[8], &out); err != nil {
		t.Fatal(err)
	}
	if err := join(1, "one more"); err != nil {
		t.Errorf("when one has left: %v", err)
	}
	if err := x.Check(); err != nil {
		t.Error(err)
	}
}

// TestSessionOfManyInstances: the instances of one session go with it, those of others stay.
func TestSessionOfManyInstances(t *testing.T) {
	x, now, callers, _ := steadyTrack(t, 90)
	var out Events
	for i := range 60 { // of those, every third of a location has the session
		if i%3 != 1 {
			continue
		}
		r := Registration{Session: 1000, ID: callers[i].ID, Location: "MAN", Role: protocol.InstanceLeader, Takeover: true}
		if _, err := x.Register(now, r, &out); err != nil {
			t.Fatal(err)
		}
	}
	if err := x.Check(); err != nil {
		t.Fatal(err)
	}
	out.Reset()
	x.SessionEnded(now, 1000, &out)
	var gone []string
	for _, e := range out.List {
		if e.Kind == protocol.TrackEventLeft {
			gone = append(gone, e.Instance)
		}
	}
	if n := x.NumInstances(); len(gone) != 20 || !slices.IsSorted(gone) || n != 70 || x.HasSession(1000) {
		t.Errorf("%d went, in order: %v, and %d are left", len(gone), slices.IsSorted(gone), n)
	}
	if err := x.Check(); err != nil {
		t.Error(err)
	}
	checkCounts(t, x)
}

// TestBlockers: a status names the first ten of the instances that a location waits for, and an
// alert says how many there are beside them.
func TestBlockers(t *testing.T) {
	x, now, _, _ := steadyTrack(t, 120)
	var out Events
	if _, err := x.Publish(now, 0, nil, &out); err != nil {
		t.Fatal(err)
	}
	c := Caller{Session: 1, ID: "host-00000.example.net", Incarnation: x.instances.byID["host-00000.example.net"].incarnation}
	if _, err := x.Poll(now, c, nil, &out); err != nil {
		t.Fatal(err)
	}
	var want []string
	for i := range maxBlockers {
		want = append(want, fmt.Sprintf("host-%05d.example.net", 3*i))
	}
	if got := x.Describe(now).Locations[0].BlockedBy; !slices.Equal(got, want) {
		t.Errorf("the location waits for %v, want %v", got, want)
	}
	out.Reset()
	now.Log += DefaultStallTimeout
	x.Tick(now, &out)
	alert := "leaders do not load the target: " + strings.Join(want, ", ") + " and 30 more"
	if !slices.ContainsFunc(out.List, func(e protocol.TrackEvent) bool { return e.Text == alert }) {
		t.Errorf("no %q in %+v", alert, out.List)
	}
}

// BenchmarkSessionEnded is the end of a session with all instances of a track.
func BenchmarkSessionEnded(b *testing.B) {
	var out Events
	for b.Loop() {
		b.StopTimer()
		now := Now{Log: 1000, Wall: 1000}
		x, err := New(now, protocol.TrackConfig{
			Source: protocol.SourcePublished, Locations: []protocol.LocationConfig{{Name: "SAS"}},
		}, &out)
		if err != nil {
			b.Fatal(err)
		}
		for i := range MaxInstances {
			r := Registration{Session: 1, ID: fmt.Sprintf("host-%05d.example.net", i), Location: "SAS", Role: protocol.InstanceLeader}
			if _, err := x.Register(now, r, &out); err != nil {
				b.Fatal(err)
			}
		}
		out.Reset()
		b.StartTimer()
		x.SessionEnded(now, 1, &out)
	}
}

// TestPayloadOfAVersion: at the limit, and one byte more.
func TestPayloadOfAVersion(t *testing.T) {
	x, now, _, _ := steadyTrack(t, 1)
	var out Events
	if _, err := x.Publish(now, 0, make([]byte, protocol.MaxTrackPayload+1), &out); err == nil {
		t.Error("a payload one byte past the limit is taken")
	}
	if _, err := x.Publish(now, 0, make([]byte, protocol.MaxTrackPayload), &out); err != nil {
		t.Errorf("a payload at the limit: %v", err)
	}
}

// TestLocationsThatWere: those taken out of the order are remembered up to the limit; where all of
// them have instances, no more can be taken out.
func TestLocationsThatWere(t *testing.T) {
	now := Now{Log: 1000, Wall: 1000}
	var out Events
	config := func(generation int) protocol.TrackConfig {
		c := protocol.TrackConfig{Source: protocol.SourcePublished}
		for i := range protocol.MaxTrackLocations {
			c.Locations = append(c.Locations, protocol.LocationConfig{Name: fmt.Sprintf("g%d-%d", generation, i)})
		}
		return c
	}
	x, err := New(now, config(0), &out)
	if err != nil {
		t.Fatal(err)
	}
	fill := func(generation int) {
		t.Helper()
		for i := range protocol.MaxTrackLocations {
			name := fmt.Sprintf("g%d-%d", generation, i)
			if _, err := x.Register(now, Registration{Session: 1, ID: name,
				Location: name, Role: protocol.InstanceFollower}, &out); err != nil {
				t.Fatal(err)
			}
		}
	}
	fill(0)
	if err := x.Configure(now, 1, config(1), &out); err != nil {
		t.Fatalf("as many as are remembered: %v", err)
	}
	fill(1)
	if err := x.Configure(now, 2, config(2), &out); !errors.Is(err, ErrTooManyLocations) {
		t.Errorf("more than are remembered, all with instances: %v", err)
	}
	for i := range protocol.MaxTrackLocations {
		if err := x.Evict(now, fmt.Sprintf("g0-%d", i), &out); err != nil {
			t.Fatal(err)
		}
	}
	if err := x.Configure(now, 2, config(2), &out); err != nil {
		t.Errorf("those without instances may be forgotten: %v", err)
	}
	one := config(3)
	one.Locations = append(one.Locations, protocol.LocationConfig{Name: "one more"})
	if err := x.Configure(now, 3, one, &out); err == nil {
		t.Error("an order one longer than the limit is taken")
	}
	if err := x.Check(); err != nil {
		t.Error(err)
	}
}
