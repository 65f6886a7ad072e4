// How does ZooKeeper lock, read and watch?

package main

import (
	"context"
	"errors"
	"path"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/signalbox-dev/signalbox/loadgen"
)

// zooKeeperTarget speaks to ZooKeeper through go-zookeeper/zk, which sends the requests of many
// callers on one connection without waiting in between. Its calls take no contexts: of all that it
// does here, only waiting for a lock and for a change end with theirs.
type zooKeeperTarget struct {
	addrs []string    // a connection goes to one of them, chosen at random
	queue bool        // locks are contended
	made  atomic.Bool // the root is there
}

func (t *zooKeeperTarget) Name() string { return "zookeeper at " + strings.Join(t.addrs, ",") }

func (t *zooKeeperTarget) Code(err error) string { return codeOf(err) }

// zooKeeperTimeout of sessions, as ours. The client pings at a third of it.
const zooKeeperTimeout = 10 * time.Second

type quiet struct{}

func (quiet) Printf(string, ...any) {}

// Open waits for the session, which belongs to the connection.
func (t *zooKeeperTarget) Open(ctx context.Context) (loadgen.Conn, error) {
	c, events, err := zk.Connect(t.addrs, zooKeeperTimeout, zk.WithLogger(quiet{}), zk.WithLogInfo(false))
	if err != nil {
		return nil, err
	}
	for {
		select {
		case ev, ok := <-events:
			if !ok {
				return nil, errors.New("the connection is closed")
			}
			if ev.State != zk.StateHasSession {
				continue
			}
			if t.made.Load() {
				return &zooKeeperConn{t, c}, nil
			}
			if _, err := c.Create(root, nil, 0, anybody); err != nil && !errors.Is(err, zk.ErrNodeExists) {
				c.Close()
				return nil, err
			}
			t.made.Store(true)
			return &zooKeeperConn{t, c}, nil
		case <-ctx.Done():
			c.Close()
			return nil, ctx.Err()
		}
	}
}

const root = "/bench"

var anybody = zk.WorldACL(zk.PermAll)

// place is the node of a name: one level below the root.
func place(name string) string { return path.Join(root, strings.ReplaceAll(name, "/", "-")) }

type zooKeeperConn struct {
	t *zooKeeperTarget
	c *zk.Conn
}

func (c *zooKeeperConn) Close() error {
	c.c.Close()
	return nil
}

func (c *zooKeeperConn) Session(context.Context) (loadgen.Session, error) {
	return &zooKeeperSession{c.c, c.c.SessionID(), c.t.queue}, nil
}

type zooKeeperSession struct {
	c     *zk.Conn
	id    int64
	queue bool
}

func (s *zooKeeperSession) Close(context.Context) error { return nil }

func (s *zooKeeperSession) Alive() bool {
	return s.c.State() == zk.StateHasSession && s.c.SessionID() == s.id
}

// Acquirer locks with ZooKeeper's queue recipe, of its client library, when many want the lock; and
// with a single ephemeral node when nobody else does, which spares listing the queue.
func (s *zooKeeperSession) Acquirer(loadgen.AcquireOptions) loadgen.Acquirer {
	if s.queue {
		return zooKeeperQueue(s.c)
	}
	return loadgen.AcquirerFunc(func(_ context.Context, name string) (loadgen.Lease, error) {
		p := place(name)
		if _, err := s.c.Create(p, nil, zk.FlagEphemeral, anybody); err != nil {
			return nil, err
		}
		return loadgen.LeaseFunc(func(context.Context) error { return s.c.Delete(p, -1) }), nil
	})
}

// zooKeeperQueue ends a wait with its context, which the library's lock cannot: a wait that was given
// up goes on, and hands the lock on when it gets it.
func zooKeeperQueue(c *zk.Conn) loadgen.AcquirerFunc {
	return func(ctx context.Context, name string) (loadgen.Lease, error) {
		l := zk.NewLock(c, place(name), anybody)
		locked := make(chan error, 1)
		go func() { locked <- l.Lock() }()
		select {
		case err := <-locked:
			if err != nil {
				return nil, err
			}
			return loadgen.LeaseFunc(func(context.Context) error { return l.Unlock() }), nil
		case <-ctx.Done():
			go func() {
				if <-locked == nil {
					_ = l.Unlock()
				}
			}()
			return nil, context.Cause(ctx)
		}
	}
}

func (s *zooKeeperSession) Create(_ context.Context, name string, data []byte) error {
	_, err := s.c.Create(place(name), data, 0, anybody)
	return err
}

func (s *zooKeeperSession) Delete(_ context.Context, name string) error {
	return s.c.Delete(place(name), -1)
}

func (s *zooKeeperSession) Write(_ context.Context, name string, data []byte) error {
	_, err := s.c.Set(place(name), data, -1)
	return err
}

// Reader: ZooKeeper reads from the server's memory; a linearizable read has a sync before it, sent
// right ahead on the same connection.
func (s *zooKeeperSession) Reader(strict bool) loadgen.Reader {
	return loadgen.ReaderFunc(func(_ context.Context, name string) error {
		p := place(name)
		if strict {
			if _, err := s.c.Sync(p); err != nil {
				return err
			}
		}
		_, _, err := s.c.Get(p)
		return err
	})
}

// Watch reads and watches in one request, again after each event: events carry no data.
func (s *zooKeeperSession) Watch(ctx context.Context, name string, notify func([]byte)) error {
	p := place(name)
	for {
		data, _, changed, err := s.c.GetW(p)
		if err != nil {
			return err
		}
		notify(data)
		select {
		case ev := <-changed:
			if ev.Err != nil {
				return ev.Err
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
