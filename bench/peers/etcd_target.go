// How does etcd lock, read and watch?

package main

import (
	"context"
	"errors"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.uber.org/zap"

	"github.com/signalbox-dev/signalbox/loadgen"
)

// etcdTarget speaks to etcd through its own client.
type etcdTarget struct {
	addrs []string
	ttl   int // of sessions, seconds
}

func (t *etcdTarget) Name() string { return "etcd at " + strings.Join(t.addrs, ",") }

func (t *etcdTarget) Code(err error) string { return codeOf(err) }

// codeOf returns a code that tells slow operations from broken ones.
func codeOf(err error) string {
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return "timeout"
	}
	return err.Error()
}

func (t *etcdTarget) Open(context.Context) (loadgen.Conn, error) {
	c, err := clientv3.New(clientv3.Config{Endpoints: t.addrs, DialTimeout: etcdTimeout, Logger: zap.NewNop()})
	if err != nil {
		return nil, err
	}
	return &etcdConn{t, c}, nil
}

type etcdConn struct {
	t *etcdTarget
	c *clientv3.Client
}

// Session is a lease that the client keeps alive.
func (c *etcdConn) Session(context.Context) (loadgen.Session, error) {
	s, err := concurrency.NewSession(c.c, concurrency.WithTTL(c.t.ttl))
	if err != nil {
		return nil, err
	}
	return &etcdSession{c: c.c, s: s}, nil
}

// Observer implements loadgen.CanObserve: a watch needs no lease.
func (c *etcdConn) Observer(context.Context) (loadgen.Session, error) {
	return &etcdSession{c: c.c}, nil
}

func (c *etcdConn) Close() error { return c.c.Close() }

type etcdSession struct {
	c *clientv3.Client
	s *concurrency.Session // nil: an observer
}

func (s *etcdSession) Close(context.Context) error {
	if s.s == nil {
		return nil
	}
	return s.s.Close()
}

func (s *etcdSession) Alive() bool {
	select {
	case <-s.s.Done():
		return false
	default:
		return true
	}
}

// Acquirer locks with etcd's own recipe: one transaction when the lock is free, else a watch on the
// key before; unlocking deletes the key. That is one synced commit each, the least there can be.
func (s *etcdSession) Acquirer(loadgen.AcquireOptions) loadgen.Acquirer {
	return loadgen.AcquirerFunc(func(ctx context.Context, name string) (loadgen.Lease, error) {
		m := concurrency.NewMutex(s.s, name)
		if err := m.Lock(ctx); err != nil {
			return nil, err
		}
		return loadgen.LeaseFunc(m.Unlock), nil
	})
}

func (s *etcdSession) Create(ctx context.Context, name string, data []byte) error {
	return s.Write(ctx, name, data)
}

func (s *etcdSession) Write(ctx context.Context, name string, data []byte) error {
	_, err := s.c.Put(ctx, name, string(data))
	return err
}

func (s *etcdSession) Delete(ctx context.Context, name string) error {
	_, err := s.c.Delete(ctx, name)
	return err
}

// Reader: linearizable by default, and serializable, from the member's own state, when relaxed.
func (s *etcdSession) Reader(strict bool) loadgen.Reader {
	var opts []clientv3.OpOption
	if !strict {
		opts = append(opts, clientv3.WithSerializable())
	}
	return loadgen.ReaderFunc(func(ctx context.Context, name string) error {
		_, err := s.c.Get(ctx, name, opts...)
		return err
	})
}

// Watch is a watch of its own for each watcher. The client puts those of a connection into one
// stream, which is cheapest for the server.
func (s *etcdSession) Watch(ctx context.Context, name string, notify func([]byte)) error {
	now, err := s.c.Get(ctx, name)
	if err != nil {
		return err
	}
	for _, kv := range now.Kvs {
		notify(kv.Value)
	}
	for r := range s.c.Watch(ctx, name, clientv3.WithRev(now.Header.Revision+1)) {
		if err := r.Err(); err != nil {
			return err
		}
		for _, ev := range r.Events {
			if ev.Type == clientv3.EventTypePut {
				notify(ev.Kv.Value)
			}
		}
	}
	return context.Cause(ctx)
}
