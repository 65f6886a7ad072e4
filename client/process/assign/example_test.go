package assign_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/process"
	"github.com/signalbox-dev/signalbox/client/process/assign"
	"github.com/signalbox-dev/signalbox/server/servertest"
)

// A second worker takes over half of the partitions, when the first one has stopped working on
// them.
func Example() {
	ctx := context.Background()
	srv := servertest.New(servertest.RealTime()) // a program dials the address of a running server
	defer srv.Close()
	c, err := client.Dial(ctx, srv.Addr())
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	join := func() *assign.Worker {
		s, err := c.Session(ctx, "/default", client.Timeout(30*time.Second))
		if err != nil {
			log.Fatal(err)
		}
		w, err := assign.Join(ctx, s, "mail", 8, assign.Run(func(ctx context.Context, p assign.Partition) {
			<-ctx.Done() // here it would work on the partition
		}), process.Options{Synchronous: true})
		if err != nil {
			log.Fatal(err)
		}
		return w
	}
	first := join()
	fmt.Println(first.Held())
	second := join()
	fmt.Println(first.Held(), second.Held())
	_ = first.Leave(ctx)
	_ = second.Leave(ctx)

	// Output:
	// [0 1 2 3 4 5 6 7]
	// [0 1 2 3] [4 5 6 7]
}
