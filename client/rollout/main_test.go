package rollout_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/signalbox-dev/signalbox/client"
	sdk "github.com/signalbox-dev/signalbox/client/rollout"
	"github.com/signalbox-dev/signalbox/server/servertest/pagesize"
)

func TestMain(m *testing.M) {
	pagesize.Two()
	goleak.VerifyTestMain(m, goleak.IgnoreCurrent())
}

// longSession keeps sessions out of tests that are not about their end.
var longSession = []client.SessionOption{client.Timeout(30 * time.Minute)}

// world is a coordinator in virtual time, with a session of an operator.
type world struct {
	*fakeServer
	ctx   context.Context
	track *sdk.Track
}

// inWorld runs a test in virtual time: it goes on when everything waits.
func inWorld(t *testing.T, run func(t *testing.T, w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(context.Background())
		w := &world{fakeServer: newFakeServer(t), ctx: ctx}
		w.operate()
		t.Cleanup(func() {
			cancel()
			synctest.Wait()
			w.close()
		})
		run(t, w)
	})
}

// operate gives the operator a session, a new one if there was one.
func (w *world) operate() {
	w.t.Helper()
	s, err := w.dial().Session(w.ctx, "/geo", longSession...)
	if err != nil {
		w.t.Fatal(err)
	}
	w.track = sdk.NewTrack(s, "geo/base")
}

// create makes the track.
func (w *world) create(c sdk.Config) {
	w.t.Helper()
	if _, err := w.track.Create(w.ctx, c); err != nil {
		w.t.Fatal(err)
	}
}

// publish publishes a version with a payload that names it.
func (w *world) publish(version uint64) {
	w.t.Helper()
	if v, err := w.track.Publish(w.ctx, version, payload(version)); err != nil || v != version {
		w.t.Fatal(v, err)
	}
}

func payload(version uint64) []byte { return []byte{'v', byte(version)} }

// wait lets time pass.
func (w *world) wait(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// targets are the locations' targets.
func (w *world) targets() map[string]uint64 {
	w.t.Helper()
	s, err := w.track.Describe(w.ctx)
	if err != nil {
		w.t.Fatal(err)
	}
	out := map[string]uint64{}
	for _, l := range s.Locations {
		out[l.Name] = l.Target
	}
	return out
}
