package rollout_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	sdk "github.com/signalbox-dev/signalbox/client/rollout"
	"github.com/signalbox-dev/signalbox/protocol"
)

// TestManual: who says itself when it serves holds nobody up until then.
func TestManual(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.create(oneLocation)
		w.publish(10)
		a := w.follow("a", "SAS", nil)
		slow := w.follow("slow", "SAS", func(o *sdk.FollowerOptions, m *member) { o.Manual = true })
		w.wait(time.Second)
		slow.has(10)
		slow.set(func() {
			slow.update = func(ctx context.Context, _ sdk.Version) error {
				<-ctx.Done()
				return ctx.Err()
			}
		})
		w.publish(11)
		w.wait(time.Second)
		w.publish(12)
		w.wait(time.Second)
		a.has(12)
		if s := slow.f.State(); s.Role != sdk.FollowerRole || s.Current != 10 {
			t.Fatalf("state is %+v", s)
		}
		slow.set(func() { slow.update = nil })
		w.publish(13) // ends the hanging update
		slow.f.MarkReady()
		w.wait(time.Second)
		if s := slow.f.State(); s.Role != sdk.LeaderRole || s.Current != 13 {
			t.Fatalf("state is %+v", s)
		}
		slow.f.MarkNotReady()
		w.wait(time.Second)
		if s := slow.f.State(); s.Role != sdk.FollowerRole {
			t.Fatalf("state is %+v", s)
		}
	})
}

// TestRollback: an instance is told the older version, and loads it.
func TestRollback(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.create(oneLocation)
		a := w.follow("a", "SAS", nil)
		for v := uint64(10); v <= 12; v++ {
			w.publish(v)
			w.wait(time.Second)
		}
		a.has(12)
		if err := w.track.Rollback(w.ctx, 10, "SAS"); err != nil {
			t.Fatal(err)
		}
		w.wait(20 * time.Second)
		a.has(10)
		w.publish(13)
		w.wait(time.Second)
		a.has(13)
		if got := a.loaded(); !slices.Equal(got, []uint64{10, 11, 12, 10, 13}) {
			t.Errorf("loaded %v", got)
		}
	})
}

// TestOperators: every command of an operator, with what it changes and how it is refused.
func TestOperators(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		config := sdk.Config{Source: sdk.Published, Retention: 2 * time.Hour,
			Locations: []sdk.Location{{Name: "SAS"}, {Name: "MAN", Delay: time.Hour, Share: 50}}}
		w.create(config)
		if _, err := w.track.Create(w.ctx, config); !errors.Is(err, client.ErrAlreadyExists) {
			t.Errorf("created twice: %v", err)
		}
		if _, err := w.track.Alter(w.ctx, 7, config); !errors.Is(err, client.ErrPreconditionFailed) {
			t.Errorf("altered at another revision: %v", err)
		}
		if revision, err := w.track.Alter(w.ctx, 1, config); err != nil || revision != 2 {
			t.Errorf("altered to %d, %v", revision, err)
		}
		a, b := w.follow("a", "SAS", nil), w.follow("b", "MAN", nil)
		w.publish(10)
		w.wait(time.Second)
		ok := func(what string, err error) {
			t.Helper()
			if err != nil {
				t.Fatalf("%s: %v", what, err)
			}
			w.wait(time.Second)
		}
		ok("promote", w.track.Promote(w.ctx, "MAN"))
		b.has(10)
		ok("pause", w.track.Pause(w.ctx, false))
		w.publish(11)
		w.wait(time.Minute)
		a.has(10)
		ok("resume", w.track.Resume(w.ctx))
		w.wait(20 * time.Second)
		a.has(11)
		ok("exclude", w.track.Exclude(w.ctx, "SAS"))
		w.wait(20 * time.Second)
		b.has(11)
		ok("include", w.track.Include(w.ctx, "SAS"))
		ok("reelect", w.track.Reelect(w.ctx, "SAS"))
		w.publish(12)
		w.wait(20 * time.Second)
		a.has(12)
		if err := w.track.Withdraw(w.ctx, 99); !errors.Is(err, client.ErrNotFound) {
			t.Errorf("withdrawn what is not there: %v", err)
		}
		ok("withdraw", w.track.Withdraw(w.ctx, 12))
		if err := w.track.Rollback(w.ctx, 99, "SAS"); !errors.Is(err, client.ErrPreconditionFailed) {
			t.Errorf("rolled back to what never was: %v", err)
		}
		if err := w.track.Promote(w.ctx); !errors.Is(err, client.ErrBadRequest) {
			t.Errorf("promoted nothing: %v", err)
		}
		if err := w.track.Evict(w.ctx, "nobody"); !errors.Is(err, client.ErrNotFound) {
			t.Errorf("dropped nobody: %v", err)
		}
		ok("evict", w.track.Evict(w.ctx, "b"))
		s, err := w.track.Describe(w.ctx, sdk.IncludeConfig(), sdk.IncludeInstances())
		if err != nil || s.Track != "geo/base" || s.Config == nil || s.Config.Retention != 2*time.Hour ||
			s.Config.Locations[1].Delay != time.Hour || s.ConfigRevision != 2 ||
			len(s.Locations) != 2 || s.Locations[0].Target != 12 || s.Locations[0].Reason != protocol.ReasonOperator {
			t.Errorf("%+v, %v", s, err)
		}
		rows, err := w.track.History(w.ctx, "SAS")
		if err != nil || len(rows) != 3 || rows[0].Version != 10 || !rows[0].Converged || !rows[1].Skip ||
			rows[2].Reason != protocol.ReasonOperator {
			t.Errorf("%+v, %v", rows, err)
		}
		if _, err := w.track.History(w.ctx, "NOWHERE"); !errors.Is(err, sdk.ErrUnknownLocation) {
			t.Errorf("history of nowhere: %v", err)
		}
		if err := w.track.Delete(w.ctx, false); !errors.Is(err, client.ErrPreconditionFailed) {
			t.Errorf("deleted with instances: %v", err)
		}
		ok("delete", w.track.Delete(w.ctx, true))
		if _, err := w.track.Describe(w.ctx); !errors.Is(err, client.ErrNotFound) {
			t.Errorf("described what is gone: %v", err)
		}
	})
}

// TestPages: instances come in pages of the server's, and all of them are told.
func TestPages(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.create(oneLocation)
		var want []string
		for i := range 7 {
			id := fmt.Sprint("m", i)
			want = append(want, id)
			if _, err := w.track.Register(w.ctx, sdk.Registration{ID: id, Location: "SAS"}); err != nil {
				t.Fatal(err)
			}
		}
		s, err := w.track.Describe(w.ctx, sdk.IncludeInstances())
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, p := range s.Instances {
			got = append(got, p.ID)
		}
		if !slices.Equal(got, want) {
			t.Errorf("instances are %v", got)
		}
	})
}
