package grpcsignalbox

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"

	"google.golang.org/grpc/attributes"
	"google.golang.org/grpc/resolver"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/discovery"
)

// builder makes resolvers of one client.
type builder struct {
	c     *client.Client
	watch []discovery.WatchOption
}

func (b *builder) Scheme() string { return "signalbox" }

func (b *builder) Build(
	target resolver.Target, cc resolver.ClientConn, _ resolver.BuildOptions,
) (resolver.Resolver, error) {
	node, service, err := parseTarget(&target.URL)
	if err != nil {
		return nil, err
	}
	e, err := discovery.Watch(b.c, node, service, b.watch...)
	if err != nil {
		return nil, err
	}
	r := &memberResolver{cc: cc, endpoints: e, service: fmt.Sprintf("service %s in %s", service, node),
		stop: make(chan struct{})}
	r.done.Go(r.run)
	return r, nil
}

// parseTarget reads signalbox:///NODE/SERVICE.
func parseTarget(u *url.URL) (node, service string, err error) {
	form := "write signalbox:///NODE/SERVICE"
	if u.Host != "" || u.User != nil {
		return "", "", fmt.Errorf("the target has the authority %q, but the client says which cluster it is; %s", u.Host,
			form)
	}
	if u.RawQuery != "" || u.ForceQuery || u.Fragment != "" {
		return "", "", fmt.Errorf("the target has a query or a fragment; %s", form)
	}
	path := u.EscapedPath()
	i := strings.LastIndexByte(path, '/')
	if i <= 0 {
		return "", "", fmt.Errorf("the target %q lacks a node or a service; %s", u.Opaque+path, form)
	}
	if node, err = url.PathUnescape(path[:i]); err == nil {
		service, err = url.PathUnescape(path[i+1:])
	}
	switch {
	case err != nil:
		return "", "", fmt.Errorf("the target is wrong: %w; %s", err, form)
	case service == "":
		return "", "", fmt.Errorf("the target %q has no service; %s", path, form)
	}
	return node, service, nil
}

// memberResolver gives gRPC the endpoints that this caller uses.
type memberResolver struct {
	cc        resolver.ClientConn
	endpoints *discovery.Endpoints
	service   string
	stop      chan struct{}
	done      sync.WaitGroup

	used []*discovery.Endpoint // as given; nil: none were
}

func (r *memberResolver) run() {
	for {
		r.report()
		select {
		case <-r.endpoints.Changed():
		case <-r.stop:
			return
		}
	}
}

// report tells gRPC what has changed. Once there is a list, trouble with the cluster is none of
// gRPC's: the list stays.
func (r *memberResolver) report() {
	v := r.endpoints.View()
	if !v.Known {
		switch err := r.endpoints.Err(); {
		case errors.Is(err, client.ErrNotFound):
			r.cc.ReportError(fmt.Errorf("%s has no members: %w", r.service, err))
		case err != nil:
			r.cc.ReportError(fmt.Errorf("%s: %w", r.service, err))
		}
		return
	}
	if r.used != nil && slices.Equal(r.used, v.Used) {
		return
	}
	r.used = append([]*discovery.Endpoint{}, v.Used...)
	_ = r.cc.UpdateState(stateOf(r.service, v.Used)) // the policy refuses nothing; the list is watched, so there is nothing to resolve again
}

// stateOf is what gRPC is told of the endpoints that are used.
func stateOf(service string, used []*discovery.Endpoint) resolver.State {
	state := resolver.State{Attributes: attributes.New(serviceKey, service)}
	for _, e := range used {
		state.Endpoints = append(state.Endpoints, resolver.Endpoint{
			Addresses:  []resolver.Address{{Addr: e.Addr}},
			Attributes: attributes.New(weightKey, e.Weight).WithValue(zoneKey, e.Zone).WithValue(tokenKey, e.Token),
		})
	}
	return state
}

// ResolveNow does nothing: changes come by themselves.
func (r *memberResolver) ResolveNow(resolver.ResolveNowOptions) {}

func (r *memberResolver) Close() {
	close(r.stop)
	r.done.Wait()
	r.endpoints.Close()
}
