package process_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/process"
	"github.com/signalbox-dev/signalbox/server/servertest"
)

// open starts a server in this process and connects to it; a program dials the address of a running
// one.
func open(ctx context.Context) (*client.Client, func()) {
	srv := servertest.New(servertest.RealTime())
	c, err := client.Dial(ctx, srv.Addr())
	if err != nil {
		log.Fatal(err)
	}
	return c, func() {
		_ = c.Close()
		srv.Close()
	}
}

type question struct{ Candidate string }

type vote struct{ Yes bool }

var votes = process.NewMessages(process.JSON[question](), process.JSON[vote]())

// voter agrees with the others on a candidate.
type voter struct {
	process.BaseHandler
	chosen chan string // capacity 1
}

func (v *voter) Prepare(*process.Round) error { return nil }

// Coordinate asks all, and leaves what they say as the round's result.
func (v *voter) Coordinate(r *process.Round) error {
	candidate := string(r.Members()[r.Size()-1].Data)
	return votes.Broadcast(r, question{candidate}, nil, process.Replies[vote]{Answered: func(replies []process.Reply[vote]) {
		yes := 0
		for _, reply := range replies {
			if reply.Err == nil && reply.Value.Yes {
				yes++
			}
		}
		_ = r.Complete(fmt.Appendf(nil, "%s, by %d of %d", candidate, yes, len(replies)))
	}})
}

func (v *voter) Process(q *process.Request) error {
	return votes.Handle(q, func(question) (vote, error) { return vote{true}, nil })
}

func (v *voter) Complete(r *process.Round) {
	select {
	case <-v.chosen: // of the round before
	default:
	}
	v.chosen <- string(r.Result())
}

// Two voters go through a round, of typed messages, whenever one of them comes.
func Example() {
	ctx := context.Background()
	c, done := open(ctx)
	defer done()
	for _, name := range []string{"ada", "bob"} {
		s, err := c.Session(ctx, "/default", client.Timeout(30*time.Second))
		if err != nil {
			log.Fatal(err)
		}
		v := &voter{chosen: make(chan string, 1)}
		p, err := process.Join(ctx, s, "vote", v, process.Options{Data: []byte(name), Synchronous: true})
		if err != nil {
			log.Fatal(err)
		}
		defer func() { _ = p.Leave(ctx) }()
		fmt.Println(<-v.chosen)
	}

	// Output:
	// ada, by 1 of 1
	// bob, by 2 of 2
}

// An operator sees who takes part.
func ExampleOperator_Describe() {
	ctx := context.Background()
	c, done := open(ctx)
	defer done()
	s, err := c.Session(ctx, "/default", client.Timeout(30*time.Second))
	if err != nil {
		log.Fatal(err)
	}
	p, err := process.Join(ctx, s, "vote", &voter{chosen: make(chan string, 1)}, process.Options{Data: []byte("ada"), Synchronous: true})
	if err != nil {
		log.Fatal(err)
	}
	status, err := process.NewOperator(s.Node(), "vote").Describe(ctx)
	if err != nil {
		log.Fatal(err)
	}
	for _, m := range status.Members {
		fmt.Printf("%s, coordinator: %v\n", m.Data, m.Session == status.Coordinator)
	}
	_ = p.Leave(ctx)

	// Output:
	// ada, coordinator: true
}
