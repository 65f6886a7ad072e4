package bench

import (
	"context"
	"errors"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/loadgen"
)

// ServiceSystem is a System of which the test of one large service can be made. Its cluster can
// tell who leads, and whether it is whole again.
type ServiceSystem interface {
	ClusterSystem

	// OpenRegistry connects to a cluster of it.
	OpenRegistry(ctx context.Context, s *Server) (ServiceRegistry, error)
}

// ServiceRegistry is where the members of the service register, under a lease or session of their
// own each.
type ServiceRegistry interface {
	// Register makes a member i of the service, with data.
	Register(ctx context.Context, i int, addr string, data []byte) (ServiceMember, error)

	// Watchers returns the arguments with which this program runs count watchers, each with a client
	// of its own: see RunWatchers.
	Watchers(ctx context.Context, count int) (args []string, err error)

	Close()
}

// ServiceMember is a member of the service.
type ServiceMember interface {
	Update(ctx context.Context, data []byte) error
	Leave(ctx context.Context) error // with its lease or session
}

// registryClients is how many clients the members share.
const registryClients = 8

// OpenRegistry implements ServiceSystem.
func (s *SignalboxSystem) OpenRegistry(ctx context.Context, server *Server) (ServiceRegistry, error) {
	plan, err := server.Plan(Watchers)
	if err != nil {
		return nil, err
	}
	r := &signalboxRegistry{endpoints: plan.Target.(*loadgen.Signalbox).Client.Endpoints}
	for range registryClients {
		c, err := r.open(ctx)
		if err != nil {
			r.Close()
			return nil, err
		}
		r.clients = append(r.clients, c)
	}
	return r, nil
}

type signalboxRegistry struct {
	endpoints []string
	clients   []*client.Client
}

func (r *signalboxRegistry) open(ctx context.Context) (*client.Client, error) {
	return client.Open(ctx, client.Config{Endpoints: r.endpoints})
}

func (r *signalboxRegistry) Close() {
	for _, c := range r.clients {
		_ = c.Close()
	}
}

func (r *signalboxRegistry) Register(ctx context.Context, i int, _ string, data []byte) (ServiceMember, error) {
	s, err := r.clients[i%len(r.clients)].Session(ctx, serviceNode)
	if err != nil {
		return nil, err
	}
	m, err := s.Service(serviceName).Register(ctx, data)
	if err != nil {
		return nil, errors.Join(err, s.Close(ctx))
	}
	return &signalboxMember{m, s}, nil
}

// Watchers implements ServiceRegistry.
func (r *signalboxRegistry) Watchers(_ context.Context, count int) ([]string, error) {
	return ProcessArgs(watchersVerb, serviceWatchers{r.endpoints, count})
}

type signalboxMember struct {
	*client.Registration
	session *client.Session
}

func (m *signalboxMember) Leave(ctx context.Context) error { return m.session.Close(ctx) }
