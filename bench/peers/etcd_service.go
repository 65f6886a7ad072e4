package main

import (
	"context"
	"errors"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.uber.org/zap"

	"github.com/signalbox-dev/signalbox/bench"
)

// servicePrefix begins the keys of a service's members, as etcd's own naming package has it: the
// service, and the member's address.
const servicePrefix = "api/"

// memberTTL is that of a member's lease, in seconds: as long as our sessions' timeout.
const memberTTL = 10

// OpenRegistry implements bench.ServiceSystem.
func (e *etcd) OpenRegistry(_ context.Context, s *bench.Server) (bench.ServiceRegistry, error) {
	plan, err := s.Plan(bench.Watchers)
	if err != nil {
		return nil, err
	}
	r := &etcdRegistry{addrs: plan.Target.(*etcdTarget).addrs}
	for range 8 {
		c, err := clientv3.New(clientv3.Config{Endpoints: r.addrs, DialTimeout: etcdTimeout, Logger: zap.NewNop()})
		if err != nil {
			r.Close()
			return nil, err
		}
		r.clients = append(r.clients, c)
	}
	return r, nil
}

type etcdRegistry struct {
	addrs   []string
	clients []*clientv3.Client
}

func (r *etcdRegistry) Close() {
	for _, c := range r.clients {
		_ = c.Close()
	}
}

// Register is a lease that the client keeps alive, and a key under it.
func (r *etcdRegistry) Register(ctx context.Context, i int, addr string, data []byte) (bench.ServiceMember, error) {
	c := r.clients[i%len(r.clients)]
	s, err := concurrency.NewSession(c, concurrency.WithTTL(memberTTL))
	if err != nil {
		return nil, err
	}
	m := &etcdMember{c, s, servicePrefix + addr}
	if err := m.Update(ctx, data); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return m, nil
}

// Watchers implements bench.ServiceRegistry.
func (r *etcdRegistry) Watchers(_ context.Context, count int) ([]string, error) {
	return bench.ProcessArgs(etcdWatchersVerb, etcdWatchers{Endpoints: r.addrs, Count: count})
}

type etcdMember struct {
	c   *clientv3.Client
	s   *concurrency.Session
	key string
}

// Update registers the member again if its lease has run out, as a service would.
func (m *etcdMember) Update(ctx context.Context, data []byte) error {
	_, err := m.c.Put(ctx, m.key, string(data), clientv3.WithLease(m.s.Lease()))
	if !errors.Is(err, rpctypes.ErrLeaseNotFound) {
		return err
	}
	if m.s, err = concurrency.NewSession(m.c, concurrency.WithTTL(memberTTL)); err != nil {
		return err
	}
	_, err = m.c.Put(ctx, m.key, string(data), clientv3.WithLease(m.s.Lease()))
	return err
}

// Leave revokes the lease, which deletes the key; a lease that has run out has deleted it.
func (m *etcdMember) Leave(context.Context) error {
	if err := m.s.Close(); !errors.Is(err, rpctypes.ErrLeaseNotFound) {
		return err
	}
	return nil
}
