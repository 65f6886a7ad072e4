package console

import (
	"strings"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/rollout"
)

// TestRolloutList: the list has the badge of the rollout's own page, as soon as time alone has made
// a location stall.
func TestRolloutList(t *testing.T) {
	s := openSite(t, nil)
	track := rollout.NewTrack(s.session(client.Timeout(30*time.Minute)), "geo/base")
	locations := []rollout.Location{{Name: "SAS"}, {Name: "MAN"}}
	if _, err := track.Create(t.Context(), rollout.Config{Source: rollout.Published, Locations: locations}); err != nil {
		t.Fatal(err)
	}
	leader, err := track.Register(t.Context(), rollout.Registration{ID: "a", Location: "SAS", Role: rollout.LeaderRole})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := track.Publish(t.Context(), 1, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := leader.GetTargetState(t.Context(), nil, false); err != nil {
		t.Fatal(err)
	}
	const list, own = "/rollouts?node=/default", "/rollout?node=/default&name="
	const badge = `<td class="bad" data-label="State">stalled`
	if a := s.get(list); a.status != 200 || strings.Contains(a.body, "stalled") {
		t.Fatalf("answered %d: %s", a.status, a.body)
	}
	s.server.Advance(11 * time.Minute)
	s.get(own+encodeName("geo/base")).wants(t, 200, badge, "SAS is stalled: 1 of 1 leaders have not loaded version 1.")
	s.get(list).wants(t, 200, badge, "1 of 2 locations")
}

func TestRolloutState(t *testing.T) {
	for _, c := range []struct {
		info             rollout.Info
		text, kind, note string
	}{
		{rollout.Info{Locations: 2, Paused: true}, "paused", "warn", ""},
		{rollout.Info{Locations: 2, States: []rollout.State{rollout.AllConverged, rollout.Converging}}, "under way", "", ""},
		{rollout.Info{Locations: 2, States: []rollout.State{rollout.Unset, rollout.WaitingDelay}}, "under way", "", ""},
		{rollout.Info{Locations: 2, States: []rollout.State{rollout.AllConverged, rollout.AllConverged}}, "converged", "good", ""},
		{rollout.Info{Locations: 3, States: []rollout.State{rollout.Empty, rollout.ReelectionPending, rollout.Stalled}},
			"stalled", "bad", "1 of 3 locations"},
		{rollout.Info{Locations: 1, States: []rollout.State{rollout.Empty}}, "empty", "warn", "1 of 1 location"},
	} {
		if got := rolloutState(&c.info); got.Text != c.text || got.Kind != c.kind || got.Note != c.note {
			t.Errorf("%+v is shown as %+v", c.info, got)
		}
	}
}
