package cluster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server/peer"
	"github.com/signalbox-dev/signalbox/server/peerdiscovery"
)

// discoveryClient sends discovery's questions over the transport. It records errors to explain why
// there is no result.
type discoveryClient struct {
	links  Transport
	silent *peerErrors
}

// Discover implements peerdiscovery.Transport.
func (c discoveryClient) Discover(ctx context.Context, address string,
	q peerdiscovery.Request) (peerdiscovery.Response, error) {
	w := discoverRequest{AddressedAs: address, ID: q.ID, Voter: q.Voter, Peers: q.Peers, Votable: q.Votable}
	b, err := c.links.Call(ctx, address, methodDiscover, encode(&w))
	var d discoverReply
	if err == nil {
		err = decode(b, &d)
	}
	c.silent.record(ctx, address, err)
	if err != nil {
		return peerdiscovery.Response{}, err
	}
	return peerdiscovery.Response{Leader: d.Leader, Retry: d.Undecided, Peers: d.Peers, Votable: d.Votable}, nil
}

// peerErrors are the errors of peers that did not answer last time.
type peerErrors struct {
	log        *slog.Logger
	probe      func(ctx context.Context, address string) error // may be nil
	configured []string                                        // peers, without this instance
	fatal      chan error                                      // capacity 1: why retrying is useless

	mu     sync.Mutex
	errors map[string]error
	probed map[string]time.Time
}

// rejections need a change of configuration, here or there.
var rejections = []error{peer.ErrToken, peer.ErrVersion, peer.ErrCluster}

func isRejection(err error) bool {
	return slices.ContainsFunc(rejections, func(r error) bool { return errors.Is(err, r) })
}

// record notes the outcome of a question. A rejection is logged, and stays until the peer answers:
// after several rejections a peer delays its answers. If all configured peers reject, or an address
// is not a peer's, waiting is useless.
func (e *peerErrors) record(ctx context.Context, address string, err error) {
	if e == nil || errors.Is(err, context.Canceled) {
		return
	}
	if err != nil && !isRejection(err) && e.shouldProbe(address, err) {
		if what := e.probe(context.WithoutCancel(ctx), address); what != nil {
			err = what
			e.fail(fmt.Errorf("peer %s is none: %w", address, what))
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	old := e.errors[address]
	switch {
	case err == nil:
		delete(e.errors, address)
		return
	case isRejection(old) && !isRejection(err):
		return
	}
	e.errors[address] = err
	if !isRejection(err) {
		return
	}
	if !isRejection(old) {
		e.log.Warn("a peer refuses this instance", "address", address, "error", err)
	}
	if !slices.ContainsFunc(e.configured, func(p string) bool { return !isRejection(e.errors[p]) }) {
		e.fail(fmt.Errorf("all peers refuse this instance, %s: %w", address, err))
	}
}

// shouldProbe reports whether to probe an address: it is configured, something listens there that
// does not answer like an instance, and it was not probed just now.
func (e *peerErrors) shouldProbe(address string, err error) bool {
	_, answered := err.(*protocol.Error)
	dial, _ := errors.AsType[*net.OpError](err)
	if e.probe == nil || answered || dial != nil && dial.Op == "dial" ||
		!slices.Contains(e.configured, address) {
		return false
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if time.Since(e.probed[address]) < probePeriod {
		return false
	}
	e.probed[address] = time.Now()
	return true
}

func (e *peerErrors) fail(err error) {
	select {
	case e.fatal <- err:
	default: // one is enough
	}
}

// String returns a clause for the beginning of a text, where a reader looks for the cause.
func (e *peerErrors) String() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.errors) == 0 {
		return ""
	}
	var b strings.Builder
	b.WriteString("peers did not answer:")
	for i, address := range slices.Sorted(maps.Keys(e.errors)) {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, " %s (%v)", address, e.errors[address])
	}
	b.WriteString("; ")
	return b.String()
}
