package discovery_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/discovery"
	"github.com/signalbox-dev/signalbox/server/servertest"
)

// BenchmarkChange is a change of one member of 5,000, from the call until the views of 50 clients
// have it, with a connection each and one server for all in this process. The metrics are over all
// views.
func BenchmarkChange(b *testing.B) {
	const members, clients = 5000, 50
	srv := servertest.Start(b, servertest.RealTime())
	ctx := b.Context()
	open := func() *client.Client {
		c, err := client.Dial(ctx, srv.Addr())
		must(b, err)
		b.Cleanup(c.CloseWithoutRelease)
		return c
	}
	var list []*discovery.Registration
	c := open()
	for i := range members {
		if i%500 == 0 { // a connection has at most so many sessions
			c = open()
		}
		s, err := c.Session(ctx, "/default", client.Timeout(time.Minute))
		must(b, err)
		r, err := discovery.Register(ctx, s, "api", discovery.Endpoint{Addr: fmt.Sprintf("10.0.%d.%d:80", i/250, i%250), Weight: 1})
		must(b, err)
		list = append(list, r)
	}
	var copies []*discovery.Endpoints
	for range clients {
		e, err := discovery.Watch(open(), "/default", "api")
		must(b, err)
		defer e.Close()
		must(b, e.Wait(ctx))
		copies = append(copies, e)
	}
	delays := make([]time.Duration, clients*b.N)
	b.ResetTimer()
	for n := range b.N {
		i, weight := n%members, 2+n/members%900
		var seen sync.WaitGroup
		began := time.Now()
		for k, e := range copies {
			seen.Go(func() {
				for e.View().All[i].Weight != weight {
					<-e.Changed()
				}
				delays[n*clients+k] = time.Since(began)
			})
		}
		must(b, list[i].Update(ctx, discovery.Endpoint{Addr: fmt.Sprintf("10.0.%d.%d:80", i/250, i%250), Weight: weight}))
		seen.Wait()
	}
	b.StopTimer()
	slices.Sort(delays)
	b.ReportMetric(float64(delays[len(delays)/2].Microseconds())/1000, "ms-p50")
	b.ReportMetric(float64(delays[len(delays)*99/100].Microseconds())/1000, "ms-p99")
}
