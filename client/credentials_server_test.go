package client_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/admin"
	"github.com/signalbox-dev/signalbox/server"
	"github.com/signalbox-dev/signalbox/server/servertest"
	"github.com/signalbox-dev/signalbox/server/servertest/await"
)

const rootToken = "the administrator's secret"

// tokens is a server with authentication, and a worker whose token is in a file.
type tokens struct {
	t    *testing.T
	srv  *servertest.Server
	root *admin.Client
	file string
}

func newTokens(t *testing.T) *tokens {
	x := &tokens{t: t, file: filepath.Join(t.TempDir(), "token")}
	x.srv = servertest.Start(t, servertest.RealTime(), servertest.Config(func(c *server.Config) {
		c.Shards, c.Auth, c.AdminToken = 2, true, rootToken
	}))
	c, err := client.Open(testContext(t), client.Config{Endpoints: []string{x.srv.Addr()}, Token: []byte(rootToken)})
	must(t, err)
	t.Cleanup(c.CloseWithoutRelease)
	x.root = admin.New(c)
	_, err = x.root.Grant(testContext(t), "worker", "/default", "use")
	must(t, err)
	x.write(x.create("one"))
	return x
}

func (x *tokens) create(id string) (secret string) {
	x.t.Helper()
	token, err := x.root.CreateToken(testContext(x.t), id, "worker")
	must(x.t, err)
	return token.Secret
}

// write replaces the file, as mv does.
func (x *tokens) write(secret string) {
	x.t.Helper()
	must(x.t, os.WriteFile(x.file+".new", []byte(secret+"\n"), 0o600))
	must(x.t, os.Rename(x.file+".new", x.file))
}

func (x *tokens) revoke(id string) {
	x.t.Helper()
	must(x.t, x.root.RevokeToken(testContext(x.t), id))
}

// connect is a client with the file, which waits for another token for so long. asked counts its
// reads.
func (x *tokens) connect(patience time.Duration) (c *client.Client, asked *atomic.Int64) {
	x.t.Helper()
	asked = new(atomic.Int64)
	read := client.TokenFile(x.file)
	c, err := client.NewImpatient(client.Config{
		Endpoints: []string{x.srv.Addr()},
		GetToken: func(ctx context.Context) ([]byte, error) {
			asked.Add(1)
			return read(ctx)
		},
	}, patience)
	must(x.t, err)
	x.t.Cleanup(c.CloseWithoutRelease)
	return c, asked
}

// states has a session send its states.
func states() (client.SessionOption, chan client.State) {
	ch := make(chan client.State, 100)
	return client.OnState(func(s client.State) { ch <- s }), ch
}

func awaitState(t *testing.T, ch chan client.State, want client.State) {
	t.Helper()
	for ctx := testContext(t); ; {
		select {
		case s := <-ch:
			if s == want {
				return
			}
			if s == client.Expired {
				t.Fatalf("the session is expired, and not %v", want)
			}
		case <-ctx.Done():
			t.Fatalf("the session is not %v", want)
		}
	}
}

// TestTokenReplaced: a token is replaced as the help of auth create says, and the other way round.
// A lease, a place in a queue and a watch live on.
func TestTokenReplaced(t *testing.T) {
	t.Parallel()
	x := newTokens(t)
	ctx := testContext(t)
	c, asked := x.connect(time.Hour)
	option, changes := states()
	holder := session(t, c, client.Timeout(time.Minute), option)
	lease, err := holder.Mutex("job").Lock(ctx)
	must(t, err)
	token := lease.Token()
	second, _ := x.connect(time.Hour)
	waiter := session(t, second, client.Timeout(time.Minute))
	queued, granted := make(chan struct{}), make(chan error, 1)
	var once sync.Once
	go func() {
		_, err := waiter.Mutex("job").Lock(ctx,
			client.OnQueued(func(uint64) { once.Do(func() { close(queued) }) }))
		granted <- err
	}()
	<-queued
	watching, stop := context.WithCancel(ctx)
	defer stop()
	n, err := second.Node(ctx, "/default")
	must(t, err)
	synced, interruptions, ended := make(chan struct{}, 10), make(chan struct{}, 10), make(chan error, 1)
	go func() {
		for ev, err := range n.Watch(watching, "job") {
			if err != nil {
				ended <- err
				return
			}
			switch ev.Kind {
			case client.EventInterrupted:
				interruptions <- struct{}{}
			case client.EventSynced:
				synced <- struct{}{}
			}
		}
	}()
	<-synced

	x.write(x.create("two")) // a new token, the file, then the old one
	x.revoke("one")
	awaitState(t, changes, client.Detached)
	awaitState(t, changes, client.Attached)
	<-interruptions
	<-synced

	before := asked.Load()
	third := x.create("three") // the old one first
	x.revoke("two")
	awaitState(t, changes, client.Detached)
	await.True(t, "the file is read again after the refusal", func() bool { return asked.Load() >= before+2 })
	x.write(third)
	awaitState(t, changes, client.Attached)
	<-interruptions

	if err := lease.Context().Err(); err != nil || lease.Token() != token || !holder.Held() {
		t.Fatalf("the lease: %v, token %d of %d", context.Cause(lease.Context()), lease.Token(), token)
	}
	must(t, lease.Release(ctx))
	must(t, <-granted)
	select {
	case err := <-ended:
		t.Error(err)
	default:
	}
}

// TestTokenRevoked: a token is revoked, and none follows. What ends says that it was refused.
func TestTokenRevoked(t *testing.T) {
	t.Parallel()
	x := newTokens(t)
	ctx := testContext(t)
	c, _ := x.connect(8 * time.Second) // the session ends first
	holder := session(t, c, client.Timeout(5*time.Second))
	lease, err := holder.Mutex("job").Lock(ctx)
	must(t, err)
	served, supervised := make(chan struct{}), make(chan error, 1)
	go func() {
		supervised <- c.Supervise(ctx, "/default", func(ctx context.Context, _ *client.Session) error {
			close(served)
			<-ctx.Done()
			return ctx.Err()
		}, client.Timeout(5*time.Second))
	}()
	<-served
	n, err := c.Node(ctx, "/default")
	must(t, err)
	watched := make(chan error, 1)
	synced := make(chan struct{})
	go func() {
		for ev, err := range n.Watch(ctx, "job") {
			if err != nil {
				watched <- err
				return
			}
			if ev.Kind == client.EventSynced {
				close(synced)
			}
		}
	}()
	<-synced

	x.revoke("one")
	<-lease.Context().Done()
	for _, err := range []error{holder.Err(), context.Cause(lease.Context()), <-supervised, <-watched} {
		if !errors.Is(err, client.ErrUnauthenticated) || errors.Is(err, client.ErrUnreachable) {
			t.Errorf("it ended with: %v", err)
		}
	}
	if err := holder.Err(); !errors.Is(err, client.ErrNotRenewed) || !errors.Is(err, client.ErrSessionExpired) ||
		!strings.Contains(err.Error(), "was revoked") || strings.Contains(err.Error(), "cannot be reached") {
		t.Errorf("the session ended with: %v", err)
	}

	x.write(x.create("two")) // too late for those; the client works again
	_, err = c.Session(ctx, "/default")
	must(t, err)
}

// TestTokenFileGone: while the file cannot be read, the former token is shown; if that is refused,
// the error says both.
func TestTokenFileGone(t *testing.T) {
	t.Parallel()
	x := newTokens(t)
	ctx := testContext(t)
	c, _ := x.connect(8 * time.Second)
	option, changes := states()
	holder := session(t, c, client.Timeout(10*time.Second), option)
	must(t, os.Remove(x.file))
	x.srv.DropConnections()
	awaitState(t, changes, client.Detached)
	awaitState(t, changes, client.Attached)
	x.revoke("one")
	awaitState(t, changes, client.Detached)
	_, err := holder.Mutex("job").Lock(ctx)
	if !errors.Is(err, client.ErrUnauthenticated) || !strings.Contains(err.Error(), "no such file") {
		t.Errorf("it ended with: %v", err)
	}
	_, err = client.Open(ctx, client.Config{Endpoints: []string{x.srv.Addr()}, GetToken: client.TokenFile(x.file)})
	if !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a first connection without the file: %v", err)
	}
}
