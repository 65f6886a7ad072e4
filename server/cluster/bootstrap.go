package cluster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	mathrand "math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server/discovery"
	"github.com/signalbox-dev/signalbox/server/governor"
	"github.com/signalbox-dev/signalbox/server/peer"
	"github.com/signalbox-dev/signalbox/shard/replica/beat"
)

// Bootstrap turns a process into an instance: it makes the cluster, joins the one of its peers, or
// is an instance already. It is needed before there is a map.
type Bootstrap struct {
	Store     Store
	Transport Transport
	Advertise string // where other instances reach this one
	Voter     bool   // it may make the cluster: its tier has votes in the meta shard, and data
	Peers     []string
	Cluster   string // as configured; empty matches any
	// Request is a new instance's request to join. Bootstrap fills in UUID and RaftAddress.
	Request JoinRequest
	// Probe finds out what answers at the address of a peer that does not; see the function Probe.
	// Nil for addresses that are not TCP.
	Probe  func(ctx context.Context, address string) error
	Logger *slog.Logger

	discovery  *discovery.Discovery
	peerErrors *peerErrors

	mu         sync.Mutex
	id         Identity // as on disk
	joinStatus string   // what the join waits for; empty before
	unreached  string   // which instance does not reach this one, and why; empty: none said so
}

// joinPause is the first pause between two attempts to join; it doubles up to joinPauseMost.
const (
	joinPause     = 250 * time.Millisecond
	joinPauseMost = 5 * time.Second
	joinTimeout   = 12 * time.Second // an instance needs up to 10 s to let another one join
)

// Start reads or creates the identity, and from then on answers the discovery of others. The
// transport need not be started yet.
func (b *Bootstrap) Start() (err error) {
	found := false
	if b.id, found, err = LoadIdentity(b.Store); err != nil {
		return err
	}
	if found && b.id.RaftAddress != "" && b.id.RaftAddress != b.Advertise {
		return fmt.Errorf("the folder's instance is known to the others as %s, not %s; start it under that address, or on a new folder",
			b.id.RaftAddress, b.Advertise)
	}
	if !b.id.Joined() {
		if err := checkRaftAddress(b.Advertise, b.Peers); err != nil {
			return err
		}
	}
	if !found {
		b.id = Identity{UUID: governor.NewUUID(), RaftAddress: b.Advertise}
		if err := SaveIdentity(b.Store, b.id); err != nil {
			return err
		}
	}
	peers := slices.Clone(b.Peers)
	for _, p := range b.id.Peers {
		if !slices.Contains(peers, p) {
			peers = append(peers, p)
		}
	}
	given := slices.DeleteFunc(slices.Clone(b.Peers), func(p string) bool { return p == b.Advertise })
	b.peerErrors = &peerErrors{log: b.Logger, probe: b.Probe, configured: given, errors: map[string]error{},
		probed: map[string]time.Time{}, fatal: make(chan error, 1)}
	b.discovery, err = discovery.New(discovery.Config{
		ID: governor.NewUUID(), Voter: b.Voter, Advertise: b.Advertise, Peers: peers,
		Transport: discoveryClient{b.Transport, b.peerErrors}, Logger: b.Logger,
		SavePeers: func(peers []string) error {
			return b.saveIdentity(func(id *Identity) {
				if !id.Joined() {
					id.Peers = peers
				}
			})
		},
	})
	if err != nil {
		return err
	}
	if b.id.Joined() || b.foundsAlone() {
		// Nobody may count an answer of this instance, as if it had no cluster, and make one.
		// Others are to ask again until there is a leader to name, see AnnounceLeader.
		b.AnnounceLeader(func() string { return "" })
	}
	b.Transport.HandleCall(methodDiscover, func(_ context.Context, _ string, body []byte) ([]byte, error) {
		var w discoverRequest
		if err := decode(body, &w); err != nil {
			return nil, err
		}
		a, err := b.discovery.Handle(discovery.Request{ID: w.ID, Voter: w.Voter, Peers: w.Peers, Votable: w.Votable},
			w.AddressedAs)
		if err != nil {
			return nil, protocol.Errorf(protocol.StatusUnavailable, "%v", err)
		}
		return encode(&discoverReply{Leader: a.Leader, Undecided: a.Retry, Peers: a.Peers, Votable: a.Votable}), nil
	})
	return nil
}

// checkRaftAddress refuses an address that leads peers to themselves: each would take it for its
// own. The folder keeps the address for good.
func checkRaftAddress(address string, peers []string) error {
	i := slices.IndexFunc(peers, func(p string) bool { return !isLoopback(p) })
	if len(peers) > 0 && LeadsNowhere(address) || i >= 0 && isLoopback(address) {
		return fmt.Errorf("the raft address %s leads a peer (%s) to its own machine; name this machine's with --raft-advertise",
			address, peers[max(i, 0)])
	}
	return nil
}

// LeadsNowhere: the address is one to listen at, and leads everybody to their own machine.
func LeadsNowhere(address string) bool {
	host, _, _ := net.SplitHostPort(address)
	return net.ParseIP(host).IsUnspecified()
}

// isLoopback: the address is of the machine that connects to it.
func isLoopback(address string) bool {
	host, _, _ := net.SplitHostPort(address)
	return host == "localhost" || net.ParseIP(host).IsLoopback()
}

// foundsAlone: without peers an instance makes a cluster of its own.
func (b *Bootstrap) foundsAlone() bool { return b.Voter && len(b.Peers) == 0 }

// Identity is the identity as far as known.
func (b *Bootstrap) Identity() Identity {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.id
}

// saveIdentity makes a change of the identity durable.
func (b *Bootstrap) saveIdentity(f func(id *Identity)) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	next := b.id
	f(&next)
	if err := SaveIdentity(b.Store, next); err != nil {
		return err
	}
	b.id = next
	return nil
}

// Run returns once it is decided, and on disk, who this instance is: already part of a cluster, the
// founder of a new one, or just joined. It retries until ctx ends. It fails if the cluster rejects
// the instance, if all configured peers do, and if a configured address is certainly not a peer's.
func (b *Bootstrap) Run(ctx context.Context) (id Identity, joined bool, err error) {
	switch id := b.Identity(); {
	case id.Expelled:
		return id, false, ErrExpelled
	case id.Joined():
		return id, false, nil
	}
	result := discovery.Result{Bootstrap: true}
	switch {
	case b.foundsAlone():
		b.Logger.Info("no peers given: creating a new cluster")
	case len(b.Peers) == 0 && len(id.Peers) == 0:
		return id, false, fmt.Errorf(
			"an instance of tier %s makes no cluster: give it the raft addresses of others as its peers", b.Request.Tier)
	case len(b.Peers) > 0 && len(b.peerErrors.configured) == 0:
		return id, false, errOnlyItself(b.Peers)
	default:
		if result, err = b.discover(ctx); err != nil {
			return id, false, err
		}
	}
	if result.Bootstrap {
		err := b.saveIdentity(func(id *Identity) { id.Founder, id.Instance, id.MetaReplica, id.Peers = true, 1, 1, nil })
		return b.Identity(), false, err
	}
	reply, sponsor, err := b.join(ctx, result.Leader)
	if err != nil {
		return id, false, err
	}
	err = b.saveIdentity(func(id *Identity) {
		id.Cluster, id.Instance, id.MetaReplica, id.Peers = reply.Cluster, reply.Instance, reply.MetaReplica, nil
		id.Known = []string{sponsor} // to ask before there is a map
	})
	return b.Identity(), true, err
}

// discover finds the cluster among the peers.
func (b *Bootstrap) discover(started context.Context) (discovery.Result, error) {
	ctx, cancel := context.WithCancelCause(started)
	defer cancel(nil)
	ended := make(chan struct{})
	defer close(ended)
	go func() {
		select {
		case err := <-b.peerErrors.fatal:
			cancel(err)
		case <-ended:
		}
	}()
	result, err := b.discovery.Run(ctx)
	switch {
	case err != nil && started.Err() == nil:
		return result, context.Cause(ctx)
	case err != nil:
		return result, fmt.Errorf("discover the cluster: %w%s", err, b.peerErrors.String())
	case result.Bootstrap && len(b.Peers) > 0 && b.discovery.Alone():
		return result, errOnlyItself(b.Peers)
	}
	return result, nil
}

func errOnlyItself(peers []string) error {
	return fmt.Errorf("the list of peers names nobody but this instance (%s): give it the raft addresses of others, or leave it out to make a cluster of its own", strings.Join(peers, ", "))
}

// WaitingFor describes in a sentence what Run waits for.
func (b *Bootstrap) WaitingFor() string {
	b.mu.Lock()
	joining := b.joinStatus
	b.mu.Unlock()
	if joining != "" {
		return joining
	}
	why := b.discovery.Waiting()
	if why == "" {
		return "asking the other instances what the cluster knows of this one"
	}
	return "looking for the cluster among the peers: " + why + b.peerErrors.String()
}

func (b *Bootstrap) setJoinStatus(format string, args ...any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.joinStatus = fmt.Sprintf(format, args...)
}

// SetCluster stores the cluster's id once the founder has created it.
func (b *Bootstrap) SetCluster(cluster string) error {
	if b.Identity().Cluster == cluster {
		return nil
	}
	return b.saveIdentity(func(id *Identity) { id.Cluster = cluster })
}

// SetKnown stores the addresses of the other instances for the next start.
func (b *Bootstrap) SetKnown(known []string) error {
	if slices.Equal(b.Identity().Known, known) {
		return nil
	}
	return b.saveIdentity(func(id *Identity) { id.Known = known })
}

// SetMetaReplica stores a new replica of the meta shard in place of the old one. Ids rise: a lower
// id is an outdated answer.
func (b *Bootstrap) SetMetaReplica(metaReplica uint64) error {
	if metaReplica <= b.Identity().MetaReplica {
		return nil
	}
	return b.saveIdentity(func(id *Identity) { id.MetaReplica = metaReplica })
}

// SetMetaLogged stores that the log of the instance's meta replica is in the folder from now on. If
// it is missing later, the replica's votes are lost and it must not start again.
func (b *Bootstrap) SetMetaLogged() error {
	if id := b.Identity(); id.MetaLogged == id.MetaReplica {
		return nil
	}
	return b.saveIdentity(func(id *Identity) { id.MetaLogged = id.MetaReplica })
}

// SetExpelled stores that the cluster has expelled this instance, so that it never starts again,
// whether or not others are reachable.
func (b *Bootstrap) SetExpelled() error {
	if b.Identity().Expelled {
		return nil
	}
	return b.saveIdentity(func(id *Identity) { id.Expelled = true })
}

// ErrExpelled: the cluster has expelled this instance.
var ErrExpelled = errors.New(
	"current instance is expelled from the cluster and cannot come back; to join again, start it on a new data folder")

// InstanceStatus asks the others what the cluster knows of this instance: the id of its meta
// replica, 0 while it has none. It returns the first conclusive answer. An answer of a lagging
// instance may be old, so an instance that cannot reach the meta shard asks again. It fails with
// ErrExpelled, or if nobody answers: all of them may be down.
func (b *Bootstrap) InstanceStatus(ctx context.Context) (metaReplica uint64, err error) {
	id := b.Identity()
	if len(id.Known) == 0 {
		return 0, errors.New("no other instance is known")
	}
	ctx, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()
	type result struct {
		address string
		who     instanceStatusReply
		err     error
	}
	results := make(chan result, len(id.Known))
	for _, address := range id.Known {
		go func() {
			r := result{address: address}
			body, err := b.Transport.Call(ctx, address, methodInstanceStatus, encode(&instanceStatusRequest{UUID: id.UUID}))
			if err == nil {
				err = decode(body, &r.who)
			}
			r.err = err
			results <- r
		}()
	}
	answered := false
	for range id.Known {
		r := <-results
		if r.err == nil {
			b.setUnreached(r.address, r.who.Unreached)
		}
		switch {
		case r.err != nil:
			err = r.err
		case r.who.Expelled:
			return 0, ErrExpelled
		case r.who.MetaReplica >= id.MetaReplica:
			return r.who.MetaReplica, nil
		default:
			answered = answered || r.who.MetaReplica == 0 // a lower id is outdated
		}
	}
	if answered {
		return 0, nil
	}
	if err == nil {
		err = errors.New("the others do not know yet what this instance knows")
	}
	return 0, err
}

const statusTimeout = 3 * time.Second

// setUnreached notes why the instance at an address does not reach this one; empty: it does.
func (b *Bootstrap) setUnreached(from, why string) {
	text := ""
	if why != "" {
		text = fmt.Sprintf("the instance at %s does not reach this one at %s, the raft address that it advertises (%s); "+
			"open the way to that address, or expel this instance and start it on a new folder with another --raft-advertise",
			from, b.Advertise, why)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.unreached = text
}

// Unreached says in a sentence which instance does not reach this one, and what to do; empty: none
// has said so. It is as old as the last InstanceStatus.
func (b *Bootstrap) Unreached() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.unreached
}

// AnnounceLeader answers the discovery of others with the address to join at, which leader returns;
// empty while unknown. Until it is called, an instance of a cluster has others ask again.
func (b *Bootstrap) AnnounceLeader(leader func() string) { b.discovery.Finish(leader) }

// join asks the instance at an address, and others that it learns of, until one lets this instance
// join. Asked twice, the UUID makes it join once. Sponsor is the instance that let it join.
func (b *Bootstrap) join(ctx context.Context, address string) (reply JoinReply, sponsor string, err error) {
	r := b.Request
	r.UUID, r.RaftAddress, r.Cluster = b.Identity().UUID, b.Advertise, b.Cluster
	b.setJoinStatus("asking the instance at %s to join the cluster", address)
	for pause := joinPause; ; pause = min(2*pause, joinPauseMost) {
		reply, err = b.requestJoin(ctx, address, &r)
		if err == nil {
			return reply, address, nil
		}
		if _, ok := errors.AsType[*protocol.Error](err); ok && !protocol.Retryable(err) {
			return reply, address, fmt.Errorf("the cluster at %s rejects this instance: %w", address, err)
		}
		b.setJoinStatus("asking to join; the instance at %s has not accepted: %v", address, err)
		b.Logger.Warn("join failed, will be retried", "address", address, "error", err)
		if !beat.Sleep(ctx, pause/2+mathrand.N(pause/2)) {
			return reply, address, fmt.Errorf("join the cluster at %s: %w; the last attempt ended with: %w",
				address, ctx.Err(), err)
		}
		address = b.findAnother(ctx, address)
	}
}

// findAnother asks the peers once where to join now: the answer, or address if there is none.
func (b *Bootstrap) findAnother(ctx context.Context, address string) string {
	ctx, cancel := context.WithTimeout(ctx, discovery.CallTimeout)
	defer cancel()
	peers := slices.Clone(b.Peers)
	for _, p := range b.Identity().Peers {
		if !slices.Contains(peers, p) {
			peers = append(peers, p)
		}
	}
	peers = slices.DeleteFunc(peers, func(p string) bool { return p == b.Advertise })
	leaders := make(chan string, len(peers))
	q := discovery.Request{ID: governor.NewUUID(), Peers: []string{b.Advertise}}
	for _, p := range peers {
		go func() {
			a, _ := discoveryClient{b.Transport, nil}.Discover(ctx, p, q)
			leaders <- a.Leader
		}()
	}
	for range peers {
		if l := <-leaders; l != "" && l != address {
			return l
		}
	}
	return address
}

func (b *Bootstrap) requestJoin(ctx context.Context, address string, r *JoinRequest) (reply JoinReply, err error) {
	ctx, cancel := context.WithTimeout(ctx, joinTimeout)
	defer cancel()
	body, err := b.Transport.Call(ctx, address, methodJoin, encode(r))
	if err != nil {
		return reply, err
	}
	if err := decode(body, &reply); err != nil {
		return reply, err
	}
	if reply.Cluster == "" || reply.Instance == 0 || reply.MetaReplica == 0 {
		return reply, errors.New("the reply names no instance")
	}
	return reply, nil
}

// discoveryClient sends discovery's questions over the transport. It records errors to explain why
// there is no result.
type discoveryClient struct {
	links  Transport
	silent *peerErrors
}

// Discover implements discovery.Transport.
func (c discoveryClient) Discover(ctx context.Context, address string, q discovery.Request) (discovery.Response, error) {
	w := discoverRequest{AddressedAs: address, ID: q.ID, Voter: q.Voter, Peers: q.Peers, Votable: q.Votable}
	b, err := c.links.Call(ctx, address, methodDiscover, encode(&w))
	var d discoverReply
	if err == nil {
		err = decode(b, &d)
	}
	c.silent.record(ctx, address, err)
	if err != nil {
		return discovery.Response{}, err
	}
	return discovery.Response{Leader: d.Leader, Retry: d.Undecided, Peers: d.Peers, Votable: d.Votable}, nil
}

// peerErrors is why peers did not answer last time.
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

// String is a clause for the end of an error's text.
func (e *peerErrors) String() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.errors) == 0 {
		return ""
	}
	var b strings.Builder
	b.WriteString("; peers that did not answer:")
	for i, address := range slices.Sorted(maps.Keys(e.errors)) {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, " %s (%v)", address, e.errors[address])
	}
	return b.String()
}
