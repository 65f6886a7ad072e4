package chaos

import (
	"slices"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/ratelimit"
	"github.com/signalbox-dev/signalbox/server/servertest/await"
)

// TestKilledLimitClients: beside a program that waits for units, others are started, wait for
// units and are killed, again and again. What the dead may still use costs the healthy one
// little: without the rules for sessions that begin it has a tenth of the limit. The bound is
// half of it, as the machine may be busy.
func TestKilledLimitClients(t *testing.T) {
	const rate = 200
	deaths := sizeOf(t, 6, 60)
	c := newCluster(t, "--shards", "1")
	c.startThree()
	c.makeNode()
	if _, err := c.command("limit", "create", "api", "--rate", "200", "--node", nodePath); err != nil {
		t.Fatal(err)
	}
	s, err := openClients(t, 1, c.endpoints()...)[0].Session(t.Context(), nodePath, client.Timeout(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	x := &limitTest{cluster: c}
	spec := limitClientsSpec{Sessions: 1, Leaves: []string{"api"}, Steady: true}
	healthy := x.start(spec)
	await.True(t, "the healthy program to have the limit, and to be no new one", func() bool {
		d, err := ratelimit.Describe(t.Context(), s.Node(), "api", 1)
		return err == nil && len(d.Sessions) == 1 && d.Sessions[0].Rate > 0.9*rate && d.Sessions[0].Age > time.Second
	})
	from := now()
	for range deaths {
		a := x.start(spec)
		x.awaitReports(a, "ready", 1)
		ready, _ := a.has("ready")
		await.True(t, "a program that waits for units", func() bool {
			d, err := ratelimit.Describe(t.Context(), s.Node(), "api", deaths+1)
			return err == nil && slices.ContainsFunc(d.Sessions, func(u ratelimit.SessionUse) bool {
				return u.Session == ready.Session && u.Demand > 0
			})
		})
		_ = a.cmd.Process.Kill()
		<-a.ended
	}
	to := now()
	list, err := readAdmissions(x.history(healthy.name))
	if err != nil {
		t.Fatal(err)
	}
	got := 0
	for _, a := range list {
		if a.Rate == 0 && a.From >= from && a.To <= to {
			got++
		}
	}
	limit := rate * (to - from).Seconds()
	t.Logf("the healthy program got %.0f %% of the limit in %v", 100*float64(got)/limit,
		(to - from).Round(time.Millisecond))
	if float64(got) < limit/2 {
		t.Errorf("the healthy program got %d units of the %.0f of the limit", got, limit)
	}
}
