package rollout_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	sdk "github.com/signalbox-dev/signalbox/client/rollout"
	"github.com/signalbox-dev/signalbox/protocol"
)

// generator makes versions from a counter, and keeps what came of them.
type generator struct {
	sdk.Generator
	mu    sync.Mutex
	last  uint64
	step  uint64
	asked []uint64
	given []error
	fails error // from now on
}

func newGenerator(track *sdk.Track, last uint64) *generator {
	g := &generator{last: last, step: 10}
	g.Generator = sdk.Generator{
		Track: track,
		Next: func(_ context.Context, expected uint64) (uint64, error) {
			g.mu.Lock()
			defer g.mu.Unlock()
			g.asked = append(g.asked, expected)
			if g.fails != nil {
				return 0, g.fails
			}
			g.last += g.step
			return g.last, nil
		},
		OnResult: func(_, _ uint64, err error) {
			g.mu.Lock()
			defer g.mu.Unlock()
			g.given = append(g.given, err)
		},
	}
	return g
}

func (g *generator) set(change func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	change()
}

// run runs it until the function that it answers is called.
func (g *generator) run(t *testing.T, ctx context.Context) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- g.Run(ctx) }()
	return func() {
		t.Helper()
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("ended with %v", err)
		}
	}
}

// external is a track whose versions come from outside, at most one in ten seconds.
var external = sdk.Config{
	Source: sdk.External, MinAdvanceInterval: 10 * time.Second,
	Locations: []sdk.Location{{Name: "SAS"}, {Name: "MAN", Delay: 5 * time.Second}},
}

// TestGenerator: it is asked for each version, its errors show while targets stay, and it goes on
// by itself.
func TestGenerator(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.create(external)
		g := newGenerator(w.track, 0)
		stop := g.run(t, w.ctx)
		a := w.follow("a", "SAS", nil)
		b := w.follow("b", "MAN", nil)
		w.wait(26 * time.Second)
		third := w.targets()["SAS"]
		a.has(third)
		b.has(third)
		if rows, err := w.track.History(w.ctx, "SAS"); err != nil || len(rows) != 3 || !slices.IsSorted(g.asked) {
			t.Errorf("after 26 s of at most one in ten SAS had %+v, %v; it was asked behind %v", rows, err, g.asked)
		}

		var asked int
		g.set(func() { g.fails, asked = errors.New("the\ndatabase is away"), len(g.asked) })
		w.wait(20 * time.Second)
		if s, err := w.track.Describe(w.ctx); err != nil || s.SourceError != "the database is away" || s.Locations[0].Target != third {
			t.Errorf("while it fails: %+v, %v", s, err)
		}
		g.set(func() { asked, g.fails = len(g.asked)-asked, nil })
		if asked < 3 || asked > 8 {
			t.Errorf("it was asked %d times in 16 s, and waits from 1 s on between failures", asked)
		}
		w.wait(30 * time.Second)
		if s, err := w.track.Describe(w.ctx); err != nil || s.SourceError != "" || s.Locations[0].Target <= third {
			t.Errorf("when it works again: %+v, %v", s, err)
		}

		g.set(func() { g.last, g.step = 5, 0 }) // as one that has lost its counter
		before := w.targets()["SAS"]
		w.wait(15 * time.Second)
		if s, err := w.track.Describe(w.ctx); err != nil || s.SourceError == "" || s.Locations[0].Target != before {
			t.Errorf("with versions that do not increase: %+v, %v", s, err)
		}
		stop()
	})
}

// TestSilentGenerator: a call that hangs ends, and another generator is not held up by it.
func TestSilentGenerator(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.create(external)
		silent := newGenerator(w.track, 0)
		next := silent.Next
		silent.Next = func(ctx context.Context, expected uint64) (uint64, error) {
			_, _ = next(ctx, expected)
			<-ctx.Done()
			return 0, ctx.Err()
		}
		stop := silent.run(t, w.ctx)
		m := w.follow("a", "SAS", nil)
		w.wait(8 * time.Second)
		if s, err := w.track.Describe(w.ctx); err != nil || s.SourceError == "" || s.Locations[0].Target != 0 {
			t.Errorf("nobody answers: %+v, %v", s, err)
		}
		other := newGenerator(w.track, 100)
		stopOther := other.run(t, w.ctx)
		w.wait(time.Minute)
		if len(m.loaded()) < 5 {
			t.Errorf("beside a silent generator only %v was loaded", m.loaded())
		}
		for range 20 { // it fails 5 s behind each version of the other generator
			w.wait(time.Second)
			if s, err := w.track.Describe(w.ctx); err != nil || s.SourceError != "" {
				t.Fatalf("beside a generator that works a silent one shows: %+v, %v", s, err)
			}
		}
		stop()
		stopOther()
	})
}

// TestGeneratorEnds: with what it lacks, and when its track is gone.
func TestGeneratorEnds(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		if err := new(sdk.Generator).Run(w.ctx); err == nil {
			t.Error("it ran without a track")
		}
		g := newGenerator(w.track, 0)
		if err := g.Run(w.ctx); protocol.StatusOf(err) != protocol.StatusNotFound {
			t.Errorf("a track that is not there: %v", err)
		}
		w.create(external)
		ended := make(chan error, 1)
		go func() { ended <- g.Run(w.ctx) }()
		w.wait(time.Second)
		if err := w.track.Delete(w.ctx, true); err != nil {
			t.Fatal(err)
		}
		if err := <-ended; protocol.StatusOf(err) != protocol.StatusNotFound {
			t.Errorf("a track that was deleted: %v", err)
		}
		if err := w.track.Advance(w.ctx, 0, 0); protocol.StatusOf(err) != protocol.StatusBadRequest {
			t.Errorf("version 0: %v", err)
		}
	})
}

// TestServerGenerator: two generators of a track on a real server; each version that its followers
// load was made by one of them.
func TestServerGenerator(t *testing.T) {
	x := newSite(t, sdk.Config{Source: sdk.External, Locations: []sdk.Location{{Name: "SAS"}, {Name: "MAN"}}})
	var mu sync.Mutex
	last := uint64(0)
	made := map[uint64]bool{}
	for range 2 {
		g := newGenerator(sdk.NewTrack(x.session(), "geo/base"), 0)
		g.RetryMin, g.RetryMax = time.Millisecond, 5*time.Millisecond
		g.Next = func(context.Context, uint64) (uint64, error) {
			mu.Lock()
			defer mu.Unlock()
			last++
			made[last] = true
			return last, nil
		}
		t.Cleanup(g.run(t, context.WithoutCancel(x.ctx)))
	}
	var loaded []uint64
	for _, location := range []string{"SAS", "MAN"} {
		x.follow(location+"-1", location, "", func(_ context.Context, v sdk.Version) error {
			mu.Lock()
			defer mu.Unlock()
			if !made[v.Number] {
				t.Errorf("%s is told to load %d, which nobody made", location, v.Number)
			}
			if location == "MAN" {
				loaded = append(loaded, v.Number)
			}
			return nil
		})
	}
	x.until("five versions in MAN", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(loaded) >= 5
	})
	mu.Lock()
	defer mu.Unlock()
	if !slices.IsSorted(loaded) {
		t.Errorf("MAN loaded %v", loaded)
	}
}
