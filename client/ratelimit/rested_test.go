package ratelimit_test

import (
	"context"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/client/ratelimit"
	"github.com/signalbox-dev/signalbox/server/servertest"
)

// TestRestedLimit: the first call of a limit that nobody has used is admitted at once, and its burst after that,
// on a cluster that was just formed. Without it the calls would take twice the time that they have.
func TestRestedLimit(t *testing.T) {
	t.Parallel()
	c := servertest.StartCluster(t, 3, servertest.RealTime())
	f := &fleet{t: t, ctx: t.Context(), server: c.Instance(0)}
	s := f.session()
	const burst = 60 * time.Second
	f.create(s, "api", ratelimit.Config{Rate: ratelimit.PerSecond(1), Burst: burst})
	l := f.open(s, "api")
	ctx, cancel := context.WithTimeout(t.Context(), burst/2)
	defer cancel()
	began := time.Now()
	for i := range 60 {
		if err := l.Wait(ctx, 1); err != nil {
			t.Fatalf("%d of 60 units are admitted in %v: %v", i, time.Since(began), err)
		}
	}
	t.Logf("60 units in %v", time.Since(began))
}
