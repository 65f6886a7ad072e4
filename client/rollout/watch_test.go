package rollout_test

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	sdk "github.com/signalbox-dev/signalbox/client/rollout"
)

// TestWatchTarget: what an instance that polls by itself is told.
func TestWatchTarget(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.create(oneLocation)
		i, err := w.track.Register(w.ctx, sdk.Registration{ID: "a", Location: "SAS", Role: sdk.LeaderRole})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(w.ctx)
		var seen []uint64
		done := make(chan error, 1)
		go func() {
			for target, err := range i.WatchTarget(ctx) {
				if err != nil {
					done <- err
					return
				}
				seen = append(seen, target.Version)
				if target.Version == 0 {
					continue
				}
				if err := i.Report(ctx, sdk.Report{Current: target.Version, Target: target.Version, Code: sdk.CodeOK}); err != nil {
					t.Error(err)
				}
			}
		}()
		for v := uint64(10); v < 13; v++ {
			w.wait(time.Second)
			w.publish(v)
		}
		w.wait(time.Second)
		w.setUnreachable(true)
		w.wait(time.Second)
		w.setUnreachable(false)
		w.wait(time.Minute)
		w.publish(13)
		w.wait(time.Second)
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		if !slices.Equal(seen, []uint64{0, 10, 11, 12, 13}) {
			t.Errorf("told %v", seen)
		}
		target, err := i.GetTargetState(w.ctx, nil, true)
		if err != nil || target.Version != 13 || !bytes.Equal(target.Payload, payload(13)) {
			t.Errorf("%+v, %v", target, err)
		}
		if err := i.Unregister(w.ctx); err != nil {
			t.Error(err)
		}
		if _, err := i.GetTargetState(w.ctx, nil, false); !errors.Is(err, client.ErrNotFound) {
			t.Errorf("after its end: %v", err)
		}
	})
}

// TestWatch: a status, then events with their reasons; after a lost connection a status again; an
// end when the track is deleted.
func TestWatch(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.create(oneLocation)
		var statuses, published int
		var last error
		done := make(chan struct{})
		go func() {
			defer close(done)
			for event, err := range w.track.Watch(w.ctx, "") {
				switch {
				case err != nil:
					last = err
				case event.Status != nil:
					statuses++
				case event.Event.Kind == sdk.EventPublished:
					published++
				case event.Event.Text == "":
					t.Errorf("event without a reason: %+v", event.Event)
				}
			}
		}()
		w.wait(time.Second)
		w.follow("a", "SAS", nil)
		w.publish(10)
		w.wait(time.Second)
		w.setUnreachable(true)
		w.wait(time.Second)
		w.setUnreachable(false)
		w.wait(time.Minute)
		w.publish(11)
		w.wait(time.Second)
		if err := w.track.Delete(w.ctx, true); err != nil {
			t.Fatal(err)
		}
		<-done
		if statuses != 2 || published != 2 || !errors.Is(last, client.ErrNotFound) {
			t.Errorf("%d statuses, %d versions, ended with %v", statuses, published, last)
		}
	})
}
