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

// TestGatekeeper: gates are run once each, in order, again after an inconclusive one, and their
// outcomes decide.
func TestGatekeeper(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		gates := []sdk.Gate{{Name: "smoke", Kind: sdk.Command, Spec: "true", Retry: 10 * time.Second},
			{Name: "load", Kind: sdk.Webhook, Spec: "http://load", Timeout: time.Minute}}
		w.create(sdk.Config{Source: sdk.Published,
			Locations: []sdk.Location{{Name: "SAS"}, {Name: "MAN", Delay: 5 * time.Second, Gates: gates}}})
		w.follow("a", "SAS", nil)
		b := w.follow("b", "MAN", nil)
		var mu sync.Mutex
		var ran []string
		var late error
		keeper := sdk.Gatekeeper{
			Track: w.track,
			Check: func(ctx context.Context, run sdk.GateRun) (sdk.Outcome, string) {
				mu.Lock()
				ran = append(ran, fmt.Sprintf("%s %d %s %d", run.Location, run.Version, run.Gate.Name, run.Attempt))
				mu.Unlock()
				switch {
				case run.Gate.Name == "smoke" && run.Attempt == 1 && run.Version == 10:
					return sdk.Inconclusive, "no traffic yet"
				case run.Version == 11:
					return sdk.Failure, "3 of 10 failed"
				case run.Version == 12 && run.Gate.Name == "load" && run.Attempt == 1:
					<-ctx.Done() // it takes too long
					mu.Lock()
					late = ctx.Err()
					mu.Unlock()
				}
				return sdk.Success, ""
			},
		}
		ended := make(chan error, 1)
		ctx, cancel := context.WithCancel(w.ctx)
		go func() { ended <- keeper.Run(ctx) }()
		for v := uint64(10); v <= 12; v++ {
			w.publish(v)
			w.wait(2 * time.Minute)
		}
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("ended with %v", err)
		}
		want := []string{
			"MAN 10 smoke 1", "MAN 10 smoke 2", "MAN 10 load 1", "MAN 11 smoke 1", "MAN 12 smoke 1", "MAN 12 load 1", "MAN 12 load 2",
		}
		if !slices.Equal(ran, want) || late == nil {
			t.Errorf("ran %v, late %v", ran, late)
		}
		b.has(12)
		if got := b.loaded(); !slices.Equal(got, []uint64{10, 12}) {
			t.Errorf("MAN loaded %v", got)
		}
	})
}

// TestReplacedGate: a gate whose command is replaced while it runs is run again, by the new
// command, even if the run has the same number.
func TestReplacedGate(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		with := func(command string) sdk.Config {
			return sdk.Config{Source: sdk.Published, Locations: []sdk.Location{{Name: "SAS", Gates: []sdk.Gate{
				{Name: "smoke", Kind: sdk.Command, Spec: command, Timeout: time.Hour},
			}}}}
		}
		w.create(with("broken"))
		a := w.follow("a", "SAS", nil)
		stopped := make(chan struct{})
		keeper := sdk.Gatekeeper{Track: w.track, Check: func(ctx context.Context, run sdk.GateRun) (sdk.Outcome, string) {
			if run.Gate.Spec == "broken" {
				<-ctx.Done()
				close(stopped)
			}
			return sdk.Success, ""
		}}
		ended := make(chan error, 1)
		ctx, cancel := context.WithCancel(w.ctx)
		go func() { ended <- keeper.Run(ctx) }()
		w.publish(10)
		w.wait(time.Minute)
		if _, err := w.track.Alter(w.ctx, 1, with("mended")); err != nil {
			t.Fatal(err)
		}
		w.wait(time.Minute)
		a.has(10)
		select {
		case <-stopped:
		default:
			t.Error("the former command still runs")
		}
		cancel()
		<-ended
	})
}
