package recipes_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/recipes"
	"github.com/signalbox-dev/signalbox/server/servertest"
)

// open starts a server in this process and a session; a program dials the address of a running one.
func open(ctx context.Context) (*client.Session, func()) {
	srv := servertest.New()
	s, err := client.OpenSession(ctx, client.Config{Endpoints: []string{srv.Addr()}}, "/default")
	if err != nil {
		log.Fatal(err)
	}
	return s, func() {
		_ = s.Client().Close()
		srv.Close()
	}
}

// The schedules of several hosts call Run; one of them runs the task.
func ExampleOnce_Run() {
	ctx := context.Background()
	s, done := open(ctx)
	defer done()
	for range 2 {
		ran, err := recipes.NewOnce(s, "report", 24*time.Hour).Run(ctx, func(ctx context.Context, p recipes.Period) error {
			fmt.Println("reports with token", p.Lease.Token())
			return nil
		})
		fmt.Println("ran:", ran, err)
	}

	// Output:
	// reports with token 1
	// ran: true <nil>
	// ran: false <nil>
}

func ExampleLatch() {
	ctx := context.Background()
	s, done := open(ctx)
	defer done()
	imported := recipes.NewLatch(s, "imported", 2)
	for _, shard := range []string{"a", "b"} {
		if err := imported.CountDown(ctx, shard); err != nil {
			log.Fatal(err)
		}
	}
	fmt.Println("all are imported:", imported.Wait(ctx))

	// Output:
	// all are imported: <nil>
}
