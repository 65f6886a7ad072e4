package rollout

import (
	"errors"
	"fmt"
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
		if err := x.Drop(now, fmt.Sprintf("g0-%d", i), &out); err != nil {
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
