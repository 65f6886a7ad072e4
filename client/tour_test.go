package client_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/server/servertest"
)

// lockInAMinute is what the README shows, word for word.
func lockInAMinute(ctx context.Context, address string) error {
	cfg := client.Config{Endpoints: []string{address}} // "127.0.0.1:7070" after `signalbox dev`
	s, err := client.OpenSession(ctx, cfg, "/default")
	if err != nil {
		return err
	}
	defer s.Client().Close()
	return s.Mutex("backup").Run(ctx, func(ctx context.Context, lease *client.Lease) error {
		work(ctx, lease.Token()) // stop when ctx ends; send the token with every write
		return nil
	})
}

// tour is what the SDK's page shows, word for word.
func tour(ctx context.Context, address string) error {
	c, err := client.Dial(ctx, address) // one client is enough for a process
	if err != nil {
		return err
	}
	defer c.Close()
	s, err := c.Session(ctx, "/default", client.Timeout(10*time.Second), client.Description("billing@host1"))
	if err != nil {
		return err
	}

	// Two of three slots. The lease's context ends before anybody else can have them; its token
	// goes with every write that they protect.
	lease, err := s.Acquire(ctx, "slots", client.Count(2), client.CreateLimit(3), client.Data("host1"))
	if err != nil {
		return err
	}
	work(lease.Context(), lease.Token())
	if err := lease.Release(ctx); err != nil {
		return err
	}

	// A member of a service, and all members as a watcher sees them: a snapshot, then every change.
	// It resumes by itself.
	if _, err := s.Service("api").Register(ctx, []byte("10.0.0.1:80")); err != nil {
		return err
	}
	for event, err := range s.Service("api").Watch(ctx) {
		if err != nil {
			return err
		}
		fmt.Println("members:", len(event.Members))
		break
	}

	// Small configuration, changed only if nobody else changed it meanwhile. Version 0 is none yet.
	flags, err := s.Config("flags").Get(ctx)
	if err != nil && !errors.Is(err, client.ErrNotFound) {
		return err
	}
	version, err := s.Config("flags").Set(ctx, []byte(`{"dark":true}`), client.IfVersion(flags.Version))
	if err != nil {
		return err
	}
	fmt.Println("version", version)

	// Leads until the function returns. Its context ends when the leadership is lost, before
	// anybody else leads.
	return s.Election("payments").Run(ctx, func(ctx context.Context, term client.Term) error {
		fmt.Println("leading with token", term.Token)
		return nil
	})
}

// openWithFiles is what the SDK's page shows, word for word.
func openWithFiles(ctx context.Context, address string) (*client.Client, error) {
	return client.Open(ctx, client.Config{
		Endpoints:  []string{address},
		GetToken:   client.TokenFile("/run/secrets/signalbox-token"),
		GetRootCAs: client.CAFile("/run/secrets/signalbox-ca.pem"), // turns TLS on
	})
}

// train is what the SDK's page shows, word for word.
func train(ctx context.Context, s *client.Session, team string) error {
	err := s.Create(ctx, "gpu", 2, nil,
		client.SemaphoreConfig{
			Slots:   []client.Slot{{Name: "g0"}, {Name: "g1", Labels: []string{"big"}}},
			Policy:  client.PolicyFair,
			Weights: map[string]uint64{"research": 2}, // twice the share of any other team
			Preempt: client.PreemptAny, Grace: time.Minute,
		})
	if err != nil && !errors.Is(err, client.ErrAlreadyExists) {
		return err
	}
	return s.Run(ctx, "gpu", func(ctx context.Context, lease *client.Lease) error {
		fmt.Println("training on", lease.Slots())
		select {
		case <-trained(ctx):
		case <-lease.Preempted(): // another job waits: save the work within the minute
		case <-ctx.Done(): // the two hours are over, or the lease is lost
		}
		return ctx.Err()
	}, client.Key(team), client.Labels("big"), client.MaxHold(2*time.Hour))
}

// bothLocks is what the page on other lock services shows, word for word.
func bothLocks(
	ctx context.Context, s *client.Session, oldLock func(ctx context.Context, work func(context.Context) error) error,
) error {
	return oldLock(ctx, func(ctx context.Context) error {
		return s.Mutex("backup").Run(ctx, func(ctx context.Context, lease *client.Lease) error {
			work(ctx, lease.Token())
			return nil
		})
	})
}

// leadManager is what the SDK's page shows, word for word.
func leadManager(ctx context.Context, s *client.Session, manager interface{ Start(context.Context) error }) error {
	return s.Election("payments").Run(ctx, func(ctx context.Context, term client.Term) error {
		return manager.Start(ctx) // ends before anybody else can lead; term.Token fences its writes
	})
}

func trained(context.Context) <-chan struct{} { // at once
	done := make(chan struct{})
	close(done)
	return done
}

// A lock over one session, from the connection to the release.
func Example_lock() {
	srv := servertest.New()
	defer srv.Close()
	if err := lockInAMinute(context.Background(), srv.Addr()); err != nil {
		log.Fatal(err)
	}

	// Output:
	// working with token 1 <nil>
}

// A worker's slots, a service's member, a configuration and an election, over one session.
func Example_tour() {
	srv := servertest.New()
	defer srv.Close()
	if err := tour(context.Background(), srv.Addr()); err != nil {
		log.Fatal(err)
	}

	// Output:
	// working with token 1 <nil>
	// members: 1
	// version 1
	// leading with token 1
}

// A GPU with a label, of a team's share.
func Example_train() {
	srv := servertest.New()
	defer srv.Close()
	s, err := client.OpenSession(context.Background(), client.Config{Endpoints: []string{srv.Addr()}}, "/default")
	if err != nil {
		log.Fatal(err)
	}
	defer s.Client().Close()
	if err := train(context.Background(), s, "research"); err != nil {
		log.Fatal(err)
	}

	// Output:
	// training on [g1]
}

// A lock that moves here from another service, and a manager that leads.
func Example_bothLocks() {
	srv := servertest.New()
	defer srv.Close()
	ctx := context.Background()
	s, err := client.OpenSession(ctx, client.Config{Endpoints: []string{srv.Addr()}}, "/default")
	if err != nil {
		log.Fatal(err)
	}
	defer s.Client().Close()
	old := func(ctx context.Context, work func(context.Context) error) error { return work(ctx) }
	if err := bothLocks(ctx, s, old); err != nil {
		log.Fatal(err)
	}
	if err := leadManager(ctx, s, manager{}); err != nil {
		log.Fatal(err)
	}

	// Output:
	// working with token 1 <nil>
	// manager runs: <nil>
}

type manager struct{}

func (manager) Start(ctx context.Context) error {
	fmt.Println("manager runs:", ctx.Err())
	return nil
}

// Without the files there is no connection.
func Example_openWithFiles() {
	_, err := openWithFiles(context.Background(), "127.0.0.1:7070")
	fmt.Println(errors.Is(err, fs.ErrNotExist))

	// Output:
	// true
}
