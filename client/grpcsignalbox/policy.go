package grpcsignalbox

import (
	"fmt"
	"math/rand/v2"
	"sync"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/balancer/base"
	"google.golang.org/grpc/balancer/endpointsharding"
	"google.golang.org/grpc/balancer/pickfirst"
	"google.golang.org/grpc/connectivity"
)

func init() { balancer.Register(policyBuilder{}) }

type policyBuilder struct{}

func (policyBuilder) Name() string { return PolicyName }

func (policyBuilder) Build(cc balancer.ClientConn, opts balancer.BuildOptions) balancer.Balancer {
	p := &policy{ClientConn: cc}
	p.children = endpointsharding.NewBalancer(p, opts, balancer.Get(pickfirst.Name).Build, endpointsharding.Options{})
	return p
}

// policy has a pick_first for each endpoint, and spreads calls by weight over those that are
// connected. It is its children's ClientConn, so that it sees their states.
type policy struct {
	balancer.ClientConn
	children balancer.Balancer

	mu    sync.Mutex
	known bool  // there was a list
	empty error // why there are no endpoints; nil: there are some. Without a status, so that calls may wait
}

func (p *policy) UpdateClientConnState(s balancer.ClientConnState) error {
	p.mu.Lock()
	p.empty, p.known = nil, true
	if len(s.ResolverState.Endpoints) == 0 {
		service, _ := s.ResolverState.Attributes.Value(serviceKey).(string)
		p.empty = fmt.Errorf("%s has no members", service)
	}
	p.mu.Unlock()
	err := p.children.UpdateClientConnState(balancer.ClientConnState{
		// Client-side health checks and outlier detection work by the health listener.
		ResolverState: pickfirst.EnableHealthListener(s.ResolverState),
	})
	if len(s.ResolverState.Endpoints) == 0 {
		return nil // an empty list is an answer: nothing is to be resolved again
	}
	return err
}

// UpdateState is called by the children, with the state of all of them.
func (p *policy) UpdateState(s balancer.State) {
	p.mu.Lock()
	empty := p.empty
	p.mu.Unlock()
	switch {
	case empty != nil:
		s = balancer.State{ConnectivityState: connectivity.TransientFailure, Picker: base.NewErrPicker(empty)}
	case s.ConnectivityState == connectivity.Ready:
		s.Picker = newPicker(endpointsharding.ChildStatesFromPicker(s.Picker))
	}
	p.ClientConn.UpdateState(s)
}

// ResolverError ends calls while there is no list. One that was known stays in use.
func (p *policy) ResolverError(err error) {
	p.mu.Lock()
	known := p.known
	if !known {
		p.empty = err
	}
	p.mu.Unlock()
	if !known {
		p.UpdateState(balancer.State{})
	}
}

func (p *policy) UpdateSubConnState(balancer.SubConn, balancer.SubConnState) {}

func (p *policy) ExitIdle() { p.children.ExitIdle() }

func (p *policy) Close() { p.children.Close() }

// newPicker picks among the connected children.
func newPicker(children []endpointsharding.ChildState) balancer.Picker {
	var pickers []balancer.Picker
	var weights []int
	for _, c := range children {
		if c.State.ConnectivityState == connectivity.Ready {
			pickers = append(pickers, c.State.Picker)
			weights = append(weights, max(1, Weight(c.Endpoint)))
		}
	}
	return &picker{pickers: pickers, schedule: newSchedule(weights, rand.IntN)}
}

// picker takes the connected children in turns.
type picker struct {
	pickers  []balancer.Picker
	schedule *schedule
}

func (p *picker) Pick(info balancer.PickInfo) (balancer.PickResult, error) {
	return p.pickers[p.schedule.next()].Pick(info)
}
