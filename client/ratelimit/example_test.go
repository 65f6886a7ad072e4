package ratelimit_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/ratelimit"
	"github.com/signalbox-dev/signalbox/server/servertest"
)

// Two services share the limit of an API. When one of them is gone, the other has its rate within
// the length of a lease.
func Example() {
	srv := servertest.New(servertest.RealTime())
	defer srv.Close()
	ctx := context.Background()

	service := func() (*client.Client, *ratelimit.Limiter) {
		s, err := client.OpenSession(ctx, client.Config{Endpoints: []string{srv.Addr()}}, "/default")
		if err != nil {
			log.Fatal(err)
		}
		limit := ratelimit.Config{Rate: ratelimit.PerSecond(1000), Lease: time.Second}
		_, _ = ratelimit.Create(ctx, s, "api", limit) // the first of them makes it
		l, err := ratelimit.JoinSession(ctx, s, "api")
		if err != nil {
			log.Fatal(err)
		}
		return s.Client(), l
	}
	billing, a := service()
	search, b := service()
	defer search.Close()

	busy := func(l *ratelimit.Limiter) {
		for l.Wait(ctx, 20) == nil {
		}
	}
	go busy(a)
	go busy(b)
	await := func(what string, done func() bool) {
		for !done() {
			time.Sleep(10 * time.Millisecond)
		}
		fmt.Println(what)
	}
	await("each has half", func() bool {
		return a.Stats().Rate > 400 && a.Stats().Rate < 600 && b.Stats().Rate > 400 && b.Stats().Rate < 600
	})
	_ = billing.Close() // or a crash: nothing has to be given back
	await("the other has all", func() bool { return b.Stats().Rate > 950 })
	_ = b.Close(ctx)
	// Output:
	// each has half
	// the other has all
}
