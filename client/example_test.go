package client_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/server/servertest"
)

// open starts a server in this process and connects to it; a program dials the address of a running
// one.
func open(ctx context.Context) (*client.Client, func()) {
	srv := servertest.New()
	c, err := client.Dial(ctx, srv.Addr())
	if err != nil {
		log.Fatal(err)
	}
	return c, func() {
		_ = c.Close()
		srv.Close()
	}
}

func work(ctx context.Context, token uint64) { fmt.Println("working with token", token, ctx.Err()) }

// A worker takes two of three slots, and stops when they are lost.
func Example() {
	ctx := context.Background()
	srv := servertest.New()
	defer srv.Close()
	addr := "10.0.0.7:9000"

	c, err := client.Dial(ctx, srv.Addr())
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	s, err := c.Session(ctx, "/default", client.Timeout(10*time.Second), client.Description("billing@host1"))
	if err != nil {
		log.Fatal(err)
	}
	lease, err := s.Acquire(ctx, "jobs", client.Count(2), client.Data(addr), client.CreateLimit(3))
	if err != nil {
		log.Fatal(err)
	}
	defer lease.Release(ctx)
	work(lease.Context(), lease.Token()) // stop when the context ends; send the token with every write

	// Output:
	// working with token 1 <nil>
}

func ExampleSession_TryAcquire() {
	ctx := context.Background()
	c, done := open(ctx)
	defer done()
	a, _ := c.Session(ctx, "/default")
	b, _ := c.Session(ctx, "/default")
	_, _ = a.Acquire(ctx, "slots", client.CreateLimit(1))

	_, err := b.TryAcquire(ctx, "slots")
	fmt.Println("got a slot:", !errors.Is(err, client.ErrNotAcquired))
	st, err := b.Node().ExplainWait(ctx, "slots", b.ID())
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("holders:", len(st.Holders), "free:", st.Free)

	// Output:
	// got a slot: false
	// holders: 1 free: 0
}

func ExampleMutex() {
	ctx := context.Background()
	c, done := open(ctx)
	defer done()
	s, err := c.Session(ctx, "/default")
	if err != nil {
		log.Fatal(err)
	}
	lock, err := s.Mutex("nightly-report").Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("alone:", lock.Held())
	if err := lock.Release(ctx); err != nil {
		log.Fatal(err)
	}

	// Output:
	// alone: true
}

func ExampleRWMutex() {
	ctx := context.Background()
	c, done := open(ctx)
	defer done()
	reader, _ := c.Session(ctx, "/default")
	other, _ := c.Session(ctx, "/default")
	writer, _ := c.Session(ctx, "/default")

	r1, _ := reader.RWMutex("catalogue").RLock(ctx)
	r2, _ := other.RWMutex("catalogue").RLock(ctx)
	_, err := writer.RWMutex("catalogue").TryLock(ctx)
	fmt.Println("two read:", r1.Held() && r2.Held(), "- one writes:", !errors.Is(err, client.ErrNotAcquired))

	// Output:
	// two read: true - one writes: false
}

func ExampleElection_Run() {
	ctx := context.Background()
	c, done := open(ctx)
	defer done()
	s, err := c.Session(ctx, "/default")
	if err != nil {
		log.Fatal(err)
	}
	err = s.Election("payments").Run(ctx, func(ctx context.Context, term client.Term) error {
		leader, err := s.Election("payments").Leader(ctx)
		fmt.Printf("leading with token %d, known as %s\n", term.Token, leader.Data)
		return err
	}, client.Data("host1"))
	if err != nil {
		log.Fatal(err)
	}

	// Output:
	// leading with token 1, known as host1
}

func ExampleElectionReader_Observe() {
	ctx := context.Background()
	c, done := open(ctx)
	defer done()
	s, err := c.Session(ctx, "/default")
	if err != nil {
		log.Fatal(err)
	}
	e := s.Election("payments")
	for leader, err := range e.Observe(ctx) {
		if err != nil {
			log.Fatal(err)
		}
		if leader.Exists {
			fmt.Printf("%s leads\n", leader.Data)
			break
		}
		fmt.Println("nobody leads")
		if _, err := e.Campaign(ctx, client.Data("host1")); err != nil {
			log.Fatal(err)
		}
	}

	// Output:
	// nobody leads
	// host1 leads
}

func ExampleServiceReader_Watch() {
	ctx := context.Background()
	c, done := open(ctx)
	defer done()
	s, err := c.Session(ctx, "/default")
	if err != nil {
		log.Fatal(err)
	}
	var member *client.Lease
	for ev, err := range s.Service("api").Watch(ctx) { // a snapshot, then changes; resumes by itself
		if err != nil {
			log.Fatal(err)
		}
		switch ev.Kind {
		case client.MemberSnapshot:
			fmt.Println("members:", len(ev.Members))
			if member, err = s.Service("api").Register(ctx, []byte("10.0.0.7:80")); err != nil {
				log.Fatal(err)
			}
		case client.MemberAdded:
			fmt.Printf("added %s\n", ev.Member.Data)
			if err := member.Release(ctx); err != nil {
				log.Fatal(err)
			}
		case client.MemberRemoved:
			fmt.Printf("removed %s\n", ev.Member.Data)
		}
		if ev.Kind == client.MemberRemoved {
			break
		}
	}

	// Output:
	// members: 0
	// added 10.0.0.7:80
	// removed 10.0.0.7:80
}

func ExampleConfigValue_Set() {
	ctx := context.Background()
	c, done := open(ctx)
	defer done()
	s, err := c.Session(ctx, "/default")
	if err != nil {
		log.Fatal(err)
	}
	cfg := s.Config("rate-limit")
	version, err := cfg.Set(ctx, []byte("100/s"))
	if err != nil {
		log.Fatal(err)
	}
	if _, err := cfg.Set(ctx, []byte("200/s"), client.IfVersion(version)); err != nil {
		log.Fatal(err)
	}
	_, err = cfg.Set(ctx, []byte("300/s"), client.IfVersion(version)) // somebody was faster
	v, _ := cfg.Get(ctx)
	fmt.Printf("%s, version %d; refused: %v\n", v.Data, v.Version, err != nil)

	// Output:
	// 200/s, version 2; refused: true
}

// A service that goes on when its session expires: it registers again, with a new session.
func ExampleClient_Supervise() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	c, done := open(ctx)
	defer done()
	err := c.Supervise(ctx, "/default", func(ctx context.Context, s *client.Session) error {
		if _, err := s.Service("api").Register(ctx, []byte("10.0.0.7:80")); err != nil {
			return err
		}
		fmt.Println("registered")
		stop() // a service would serve here, until its context ends
		<-ctx.Done()
		return nil
	}, client.OnStopped(func(cause error) { log.Print("session is over: ", cause) }))
	fmt.Println(err)

	// Output:
	// registered
	// context canceled
}
