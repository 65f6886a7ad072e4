package servertest_test

import (
	"context"
	"fmt"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/server/servertest"
)

// A lock passes on when its holder dies, and not before the holder's session timeout is over. In a
// test, Start(t) takes the place of New and Close.
func Example() {
	srv := servertest.New()
	defer srv.Close()
	ctx := context.Background()

	alice, err := worker(ctx, srv, "alice")
	if err != nil {
		fmt.Println(err)
		return
	}
	bob, err := worker(ctx, srv, "bob")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer bob.Close()
	if _, err := alice.session.Acquire(ctx, "jobs", client.Exclusive()); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("alice has the lock")

	waiting, granted := make(chan struct{}), make(chan error)
	go func() {
		_, err := bob.session.Acquire(ctx, "jobs", client.Exclusive(),
			client.OnQueued(func(uint64) { close(waiting) }))
		granted <- err
	}()
	<-waiting

	alice.CloseWithoutRelease() // her process is gone, without a word
	srv.Advance(9 * time.Second)
	select {
	case <-granted:
		fmt.Println("too early: her session lives for 10 s")
	default:
		fmt.Println("bob waits")
	}
	srv.Advance(2 * time.Second)
	fmt.Println("bob has the lock:", <-granted == nil)

	// Output:
	// alice has the lock
	// bob waits
	// bob has the lock: true
}

type connected struct {
	*client.Client
	session *client.Session
}

func worker(ctx context.Context, srv *servertest.Server, name string) (*connected, error) {
	c, err := client.Dial(ctx, srv.Addr())
	if err != nil {
		return nil, err
	}
	s, err := c.Session(ctx, "/default", client.Timeout(10*time.Second), client.Description(name))
	if err != nil {
		c.CloseWithoutRelease()
		return nil, err
	}
	return &connected{c, s}, nil
}

// Three instances are one cluster. One of them dies, and a lock is still held by who held it. In a
// test, StartCluster(t, 3) takes the place of NewCluster and Close.
func ExampleNewCluster() {
	c := servertest.NewCluster(3)
	defer c.Close()
	ctx := context.Background()

	cl, err := client.Dial(ctx, c.Addrs()...)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer cl.Close()
	s, err := cl.Session(ctx, "/default", client.Timeout(time.Minute))
	if err != nil {
		fmt.Println(err)
		return
	}
	lease, err := s.Acquire(ctx, "jobs", client.Exclusive())
	if err != nil {
		fmt.Println(err)
		return
	}
	c.Kill(c.Leader(c.Shards()[0]))
	if err := lease.UpdateData(ctx, []byte("still here")); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("held:", lease.Held())

	// Output:
	// held: true
}
