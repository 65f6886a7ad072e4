package console

import (
	"context"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/rollout"
)

// BenchmarkTenPages reads ten pages of a cluster with 10,000 semaphores once, as ten viewers of
// different pages make a console do in each refresh. The share of a core is what the console, its
// client and the server beside it take for that at the default refresh.
func BenchmarkTenPages(b *testing.B) {
	s := openSite(b, nil)
	holder := s.session(client.Description("billing@db-1"))
	for i := range 10_000 {
		if err := holder.Create(b.Context(), fmt.Sprintf("jobs/%05d", i), 3, nil); err != nil {
			b.Fatal(err)
		}
	}
	for i := range 100 {
		if _, err := holder.Acquire(b.Context(), fmt.Sprintf("jobs/%05d", i)); err != nil {
			b.Fatal(err)
		}
	}
	track := rollout.NewTrack(holder, "geo/base")
	locations := []rollout.Location{{Name: "SAS"}, {Name: "MAN"}}
	if _, err := track.Create(b.Context(), rollout.Config{Source: rollout.Published, Locations: locations}); err != nil {
		b.Fatal(err)
	}
	v, err := s.console.viewers.anonymous(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	addresses := []string{
		"/", "/nodes", "/node?node=/default", "/semaphores?node=/default", "/semaphores?node=/default&prefix=jobs/01",
		semaphoreURL("/default", "jobs/00001"), "/sessions?node=/default", sessionURL("/default", holder.ID()), "/rollouts?node=/default",
		"/rollout?node=/default&name=" + encodeName("geo/base"),
	}
	for _, at := range addresses {
		path, query, _ := strings.Cut(at, "?")
		q, err := url.ParseQuery(query)
		if err != nil {
			b.Fatal(err)
		}
		if path == "/session" {
			q.Set("id", strconv.FormatUint(holder.ID(), 10))
		}
		b.Run(strings.TrimPrefix(path, "/")+"?"+q.Get("prefix"), func(b *testing.B) {
			began := cpuTime(b)
			for b.Loop() {
				if _, err := pages[path](context.Background(), v, q); err != nil {
					b.Fatal(err)
				}
			}
			used := cpuTime(b) - began
			b.ReportMetric(float64(used)/float64(b.N)/float64(defaultRefresh)*100, "%core")
		})
	}
}

// cpuTime is the processor time of this process.
func cpuTime(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
