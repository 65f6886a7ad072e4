package ratelimit_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/ratelimit"
	"github.com/signalbox-dev/signalbox/server/servertest/await"
	"github.com/signalbox-dev/signalbox/server/servertest/form"
)

// sharing is programs that wait for units as fast as they get them, until all together have had so many.
type sharing struct {
	name     string
	limits   []sharedLimit
	programs []sharingProgram
	units    [2]uint64     // of all programs, in the ordinary form and in longer ones
	takes    time.Duration // about, in the ordinary form; a test fails after several times that
}

type sharedLimit struct {
	path string
	ratelimit.Config
}

// sharingProgram is a session whose calls need so many units of each of its limits.
type sharingProgram struct {
	paths       []string
	units       uint64
	least, most float64 // its part of what all have had: half of its share, or twice; most 0: all
}

func perSecond(path string, rate float64, burst time.Duration) sharedLimit {
	return sharedLimit{path, ratelimit.Config{Rate: ratelimit.PerSecond(rate), Burst: burst}}
}

func weighted(path string, weight uint32) sharedLimit {
	return sharedLimit{path, ratelimit.Config{Weight: weight}}
}

// TestShares: each program has its share of what all together had, at least half of it, and never is more admitted
// than the limit allows.
func TestShares(t *testing.T) {
	one := func(least float64, paths ...string) sharingProgram { return sharingProgram{paths, 1, least, 0} }
	nine := sharing{name: "9 programs with a burst of a unit", limits: []sharedLimit{perSecond("api", 100, 10*time.Millisecond)},
		units: [2]uint64{300, 3000}, takes: 3 * time.Second}
	for range 9 {
		nine.programs = append(nine.programs, one(1./18, "api"))
	}
	for _, x := range []sharing{
		nine,
		{name: "few units, weights 20 to 1", limits: []sharedLimit{perSecond("api", 5, 0), weighted("api/a", 20), weighted("api/b", 1)},
			programs: []sharingProgram{one(10./21, "api/a"), one(1./42, "api/b")},
			units:    [2]uint64{45, 300}, takes: 9 * time.Second},
		{name: "one of the whole burst beside two of a unit", limits: []sharedLimit{perSecond("api", 1000, time.Second)},
			programs: []sharingProgram{one(1./6, "api"), one(1./6, "api"), {[]string{"api"}, 1000, 1. / 6, 0}},
			units:    [2]uint64{9_000, 60_000}, takes: 9 * time.Second},
		{name: "calls of 1, 50 and 600 units", limits: []sharedLimit{perSecond("api", 1000, time.Second)},
			programs: []sharingProgram{one(1./6, "api"), {[]string{"api"}, 50, 1. / 6, 0}, {[]string{"api"}, 600, 1. / 6, 0}},
			units:    [2]uint64{8_000, 60_000}, takes: 8 * time.Second},
		{name: "weights 10000 to 1, five programs", limits: []sharedLimit{perSecond("api", 100, 0), weighted("api/a", 10_000), weighted("api/b", 1)},
			programs: []sharingProgram{one(1./8, "api/a"), one(1./8, "api/a"), one(1./8, "api/a"), one(1./8, "api/a"),
				{[]string{"api/b"}, 1, 0, 1. / 6}}, // a busy machine may not run the others
			units: [2]uint64{400, 3000}, takes: 4 * time.Second},
		{name: "calls of two limits beside those of one", limits: []sharedLimit{perSecond("x", 1000, 0), perSecond("y", 400, 0)},
			programs: []sharingProgram{one(1./12, "x", "y"), one(1./3, "x"), one(1./12, "y")},
			units:    [2]uint64{6_000, 40_000}, takes: 5 * time.Second},
	} {
		t.Run(x.name, func(t *testing.T) { x.run(newFleet(t)) })
	}
}

func (x *sharing) run(f *fleet) {
	units, takes := x.units[0], x.takes
	if form.Is(form.Full) {
		units, takes = x.units[1], x.takes*time.Duration(x.units[1]/x.units[0]+1)
	}
	maker := f.session()
	for _, l := range x.limits {
		f.create(maker, l.path, l.Config)
	}
	waits := make([]func(context.Context, uint64) error, len(x.programs))
	for i, p := range x.programs {
		s := f.session()
		var list []*ratelimit.Limiter
		for _, path := range p.paths {
			list = append(list, f.open(s, path))
		}
		if waits[i] = list[0].Wait; len(list) > 1 {
			waits[i] = ratelimit.All(list...).Wait
		}
	}
	// The end of the time is an error that says how far it came: a busy machine has several times what is needed.
	ctx, end := context.WithTimeout(f.ctx, 5*takes+20*time.Second)
	defer end()
	got := make([]atomic.Uint64, len(x.programs))
	var sum atomic.Uint64
	var all sync.WaitGroup
	began := time.Now()
	for i, p := range x.programs {
		all.Go(func() {
			for ctx.Err() == nil {
				err := waits[i](ctx, p.units)
				if err != nil {
					if ctx.Err() == nil {
						f.t.Error(err)
						end()
					}
					return
				}
				got[i].Add(p.units)
				if sum.Add(p.units) >= units {
					end()
				}
			}
		})
	}
	all.Wait()
	passed := time.Since(began)
	if sum.Load() < units {
		f.t.Errorf("only %d of %d units were admitted in %v", sum.Load(), units, passed)
	}
	text := ""
	for i, p := range x.programs {
		part := float64(got[i].Load()) / float64(sum.Load())
		text += fmt.Sprintf(" %d (%.3f)", got[i].Load(), part)
		if n := float64(got[i].Load()); n < p.least*float64(sum.Load())-float64(p.units) || p.most > 0 && part > p.most {
			f.t.Errorf("program %d, with calls of %d units, had %.0f of %d", i, p.units, n, sum.Load())
		}
	}
	f.t.Logf("%v for%s of %d", passed.Round(time.Millisecond), text, sum.Load())
	for _, l := range x.limits {
		used := uint64(0)
		for i, p := range x.programs {
			for _, path := range p.paths {
				if path == l.path || len(path) > len(l.path) && path[:len(l.path)+1] == l.path+"/" {
					used += got[i].Load()
				}
			}
		}
		if l.Rate != nil {
			burst := l.Burst
			if burst == 0 {
				burst = time.Second
			}
			if most := *l.Rate*passed.Seconds()*1.01 + max(*l.Rate*burst.Seconds(), 1); float64(used) > most {
				f.t.Errorf("%d units of %s are admitted in %v, and at most %.0f are allowed", used, l.path, passed, most)
			}
		}
	}
}

// TestDeletedAndCreated: a limit that is deleted and created again five times in a row, under load, admits what its
// rate allows, and goes on each time.
func TestDeletedAndCreated(t *testing.T) {
	f := newFleet(t)
	s := f.session()
	c := ratelimit.Config{Rate: ratelimit.PerSecond(20)}
	f.create(s, "api", c)
	var admitted atomic.Uint64
	ctx, end := context.WithCancel(f.ctx)
	var all sync.WaitGroup
	began := time.Now()
	for range 3 {
		l := f.open(f.session(), "api")
		all.Go(func() {
			for ctx.Err() == nil {
				switch err := l.Wait(ctx, 1); {
				case err == nil:
					admitted.Add(1)
				case errors.Is(err, client.ErrNotFound): // at the moment
					time.Sleep(10 * time.Millisecond)
				case ctx.Err() == nil:
					t.Error(err)
					return
				}
			}
		})
	}
	goesOn := func(what string) {
		t.Helper()
		from := admitted.Load()
		await.True(t, "units "+what, func() bool { return admitted.Load() >= from+10 })
	}
	goesOn("at first")
	for i := range 5 {
		if err := ratelimit.Delete(f.ctx, s, "api", 0, ratelimit.Force()); err != nil {
			t.Fatal(err)
		}
		f.create(s, "api", c)
		goesOn(fmt.Sprintf("after deletion %d", i+1))
	}
	end()
	all.Wait()
	passed := time.Since(began)
	t.Logf("%d units in %v", admitted.Load(), passed)
	if most := 20*passed.Seconds()*1.01 + 20; float64(admitted.Load()) > most {
		t.Errorf("%d units are admitted in %v, and at most %.0f are allowed", admitted.Load(), passed, most)
	}
}
