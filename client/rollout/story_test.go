package rollout_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	sdk "github.com/signalbox-dev/signalbox/client/rollout"
)

// TestThreeLocations: SAS at once, MAN 5 s after SAS, VLA 5 s after MAN; nine instances, of which
// one is killed, one hangs, one starts slowly, and one version cannot be loaded by anybody.
func TestThreeLocations(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		const bad = 14
		order := []string{"SAS", "MAN", "VLA"}
		w.create(sdk.Config{
			Source: sdk.Published, AutoDemote: true, StallTimeout: time.Minute,
			Locations: []sdk.Location{{Name: "SAS"}, {Name: "MAN", Delay: 5 * time.Second}, {Name: "VLA", Delay: 5 * time.Second}},
		})

		// When each instance began to load each version, in the order in which it happened.
		type loading struct {
			location, id string
			version      uint64
			at           time.Time
		}
		var mu sync.Mutex
		var seen []loading
		hang := false
		start := func(id, location string, slow time.Duration) *member {
			return w.follow(id, location, func(_ *sdk.FollowerOptions, m *member) {
				m.update = func(ctx context.Context, v sdk.Version) error {
					mu.Lock()
					seen = append(seen, loading{location, id, v.Number, time.Now()})
					hangs := hang && id == "man-2"
					mu.Unlock()
					switch {
					case v.Number == bad:
						return sdk.Code("TimestampOutOfRange", errors.New("no such snapshot"))
					case hangs:
						<-ctx.Done()
						return ctx.Err()
					}
					time.Sleep(slow)
					return nil
				}
			})
		}
		members := map[string]*member{}
		for _, location := range order {
			for i := 1; i <= 3; i++ {
				id := fmt.Sprintf("%s-%d", map[string]string{"SAS": "sas", "MAN": "man", "VLA": "vla"}[location], i)
				slow := 100 * time.Millisecond
				if id == "sas-3" {
					slow = 40 * time.Second // its first load: it is a follower until then, and nobody waits
				}
				members[id] = start(id, location, slow)
			}
		}
		all := func(version uint64, but ...string) {
			t.Helper()
			for id, m := range members {
				if !slices.Contains(but, id) {
					m.has(version)
				}
			}
		}

		w.wait(time.Second)
		w.publish(11)
		w.wait(20 * time.Second)
		all(11, "sas-3")
		w.publish(12)
		w.wait(30 * time.Second)
		all(12, "sas-3")
		w.wait(time.Minute)
		all(12)
		members["sas-3"].set(func() { members["sas-3"].update = nil }) // from now on it is as fast as the others

		// One is killed: it counts until its session has expired, and then no more.
		w.kill(members["vla-3"])
		delete(members, "vla-3")
		w.publish(13)
		w.wait(10 * time.Second)
		if got := w.targets(); got["VLA"] != 12 && got["VLA"] != 13 {
			t.Fatalf("targets are %v", got)
		}
		w.wait(time.Minute)
		all(13)

		// One version is bad for everybody: it is left at once when there is another, and gets no
		// further.
		w.publish(bad)
		w.wait(10 * time.Second)
		if got := w.targets(); got["SAS"] != bad || got["MAN"] != 13 || got["VLA"] != 13 {
			t.Fatalf("targets are %v after a version that cannot be loaded", got)
		}
		w.publish(15)
		w.wait(20 * time.Second)
		all(15)

		// One hangs: its location and those behind it wait until it is demoted, and then go on.
		mu.Lock()
		hang = true
		mu.Unlock()
		w.publish(16)
		w.wait(30 * time.Second)
		w.publish(17)
		w.wait(20 * time.Second)
		if got := w.targets(); got["SAS"] != 17 || got["MAN"] != 16 || got["VLA"] != 16 {
			t.Fatalf("targets are %v while one hangs", got)
		}
		if s, err := w.track.Describe(w.ctx); err != nil || !slices.Equal(s.Locations[1].BlockedBy, []string{"man-2"}) {
			t.Fatalf("%+v, %v", s, err)
		}
		w.wait(2 * time.Minute)
		if got := w.targets(); got["MAN"] != 17 || got["VLA"] != 17 {
			t.Fatalf("targets are %v after it was demoted", got)
		}
		all(17, "man-2")

		// What happened, by events: no location began with a version before the one before it had
		// had it for its delay, and nobody but SAS saw the bad one.
		mu.Lock()
		defer mu.Unlock()
		first := map[string]map[uint64]time.Time{"SAS": {}, "MAN": {}, "VLA": {}}
		for _, l := range seen {
			if _, ok := first[l.location][l.version]; !ok {
				first[l.location][l.version] = l.at
			}
			if l.version == bad && l.location != "SAS" {
				t.Errorf("%s was to load the bad version", l.id)
			}
		}
		for i, location := range order[1:] {
			if len(first[location]) < 5 {
				t.Errorf("%s loaded %v only", location, first[location])
			}
			for version, at := range first[location] {
				before, ok := first[order[i]][version]
				if !ok || at.Sub(before) < 5*time.Second {
					t.Errorf("%s began with %d %v after %s", location, version, at.Sub(before), order[i])
				}
			}
		}
	})
}

// kill ends a member as the death of its process does: nothing is said to the server.
func (w *world) kill(m *member) {
	m.dead.Store(true)
	m.cut()
	m.cancel()
	<-m.ended
}
