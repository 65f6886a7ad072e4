package cluster

import (
	"context"
	"crypto/rand"
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
	"github.com/signalbox-dev/signalbox/server/peer"
)

// Bootstrap is how a process becomes an instance: it makes the cluster, or joins the one that its peers belong to, or already is one. Needed before there is a map.
type Bootstrap struct {
	Store     Store
	Transport Transport
	Advertise string // where other instances reach this one
	Voter     bool   // its tier may vote in the meta shard: it may make the cluster
	Peers     []string
	Cluster   string // name the operator gave; empty takes any
	// Request is what a new instance asks to be taken in with. UUID and RaftAddress are filled in here.
	Request JoinRequest
	// Probe says what answers at the address of a peer that does not; see the function Probe. Nil where addresses are not of TCP.
	Probe  func(ctx context.Context, address string) error
	Logger *slog.Logger

	discovery  *discovery.Discovery
	peerErrors *peerErrors

	mu         sync.Mutex
	id         Identity // as it is on disk
	joinStatus string   // what the join waits for; empty before
}

// joinPause is the first pause between two attempts to join; it doubles up to joinPauseMost.
const (
	joinPause     = 250 * time.Millisecond
	joinPauseMost = 5 * time.Second
	joinTimeout   = 12 * time.Second // an instance takes up to 10 s to take another in
)

// NewUUID is a random version 4 UUID.
func NewUUID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // it never fails
	b[6] = b[6]&0x0f | 0x40
	b[8] = b[8]&0x3f | 0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[0:4], b[4:6], b[6:8], b[8:10], b[10:16])
}

// Start reads or makes the identity, and from then on answers others that look for their peers. The links need not run yet.
func (e *Bootstrap) Start() (err error) {
	found := false
	if e.id, found, err = LoadIdentity(e.Store); err != nil {
		return err
	}
	if found && e.id.RaftAddress != "" && e.id.RaftAddress != e.Advertise {
		return fmt.Errorf("the folder's instance is known to the others as %s, not %s; start it under that address, or on a new folder", e.id.RaftAddress, e.Advertise)
	}
	if !found {
		e.id = Identity{UUID: NewUUID(), RaftAddress: e.Advertise}
		if err := SaveIdentity(e.Store, e.id); err != nil {
			return err
		}
	}
	peers := slices.Clone(e.Peers)
	for _, p := range e.id.Peers {
		if !slices.Contains(peers, p) {
			peers = append(peers, p)
		}
	}
	given := slices.DeleteFunc(slices.Clone(e.Peers), func(p string) bool { return p == e.Advertise })
	e.peerErrors = &peerErrors{log: e.Logger, probe: e.Probe, configured: given, errors: map[string]error{}, probed: map[string]time.Time{}, fatal: make(chan error, 1)}
	e.discovery, err = discovery.New(discovery.Config{
		ID: NewUUID(), Voter: e.Voter, Advertise: e.Advertise, Peers: peers, Transport: discoveryClient{e.Transport, e.peerErrors}, Logger: e.Logger,
		SavePeers: func(peers []string) error {
			return e.saveIdentity(func(id *Identity) {
				if !id.Joined() {
					id.Peers = peers
				}
			})
		},
	})
	if err != nil {
		return err
	}
	e.Transport.HandleCall(methodDiscover, func(_ context.Context, _ string, body []byte) ([]byte, error) {
		var w discoverRequest
		if err := decode(body, &w); err != nil {
			return nil, err
		}
		a, err := e.discovery.Handle(discovery.Request{ID: w.ID, Voter: w.Voter, Peers: w.Peers, Votable: w.Votable}, w.AddressedAs)
		if err != nil {
			return nil, protocol.Errorf(protocol.StatusUnavailable, "%v", err)
		}
		return encode(&discoverReply{Leader: a.Leader, Undecided: a.Retry, Peers: a.Peers, Votable: a.Votable}), nil
	})
	return nil
}

// Identity is what is known so far.
func (e *Bootstrap) Identity() Identity {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.id
}

// saveIdentity makes a change to the identity durable.
func (e *Bootstrap) saveIdentity(f func(id *Identity)) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	next := e.id
	f(&next)
	if err := SaveIdentity(e.Store, next); err != nil {
		return err
	}
	e.id = next
	return nil
}

// Run returns when it is decided, and on disk, who this instance is: one that belongs to a cluster already, the founder of a new one, or one that was taken in just now
// (joined). It tries for as long as ctx lasts. It ends with an error when the cluster refuses the instance, when all of the peers given do, and when an address given is certainly none
// of a peer.
func (e *Bootstrap) Run(ctx context.Context) (id Identity, joined bool, err error) {
	switch id := e.Identity(); {
	case id.Expelled:
		return id, false, ErrExpelled
	case id.Joined():
		return id, false, nil
	}
	result := discovery.Result{Bootstrap: true}
	switch {
	case e.Voter && len(e.Peers) == 0:
		e.Logger.Info("no peers were given: this instance makes a cluster of its own")
	case len(e.Peers) > 0 && len(e.peerErrors.configured) == 0:
		return id, false, errOnlyItself(e.Peers)
	default:
		if result, err = e.discover(ctx); err != nil {
			return id, false, err
		}
	}
	if result.Bootstrap {
		err := e.saveIdentity(func(id *Identity) { id.Founder, id.Instance, id.MetaReplica, id.Peers = true, 1, 1, nil })
		return e.Identity(), false, err
	}
	reply, sponsor, err := e.join(ctx, result.Leader)
	if err != nil {
		return id, false, err
	}
	err = e.saveIdentity(func(id *Identity) {
		id.Cluster, id.Instance, id.MetaReplica, id.Peers = reply.Cluster, reply.Instance, reply.MetaReplica, nil
		id.Known = []string{sponsor} // who can be asked, before there is a map
	})
	return e.Identity(), true, err
}

// discover finds the cluster among the peers.
func (e *Bootstrap) discover(started context.Context) (discovery.Result, error) {
	ctx, cancel := context.WithCancelCause(started)
	defer cancel(nil)
	ended := make(chan struct{})
	defer close(ended)
	go func() {
		select {
		case err := <-e.peerErrors.fatal:
			cancel(err)
		case <-ended:
		}
	}()
	result, err := e.discovery.Run(ctx)
	switch {
	case err != nil && started.Err() == nil:
		return result, context.Cause(ctx)
	case err != nil:
		return result, fmt.Errorf("look for the cluster among the peers: %w%s", err, e.peerErrors.String())
	case result.Bootstrap && len(e.Peers) > 0 && e.discovery.Alone():
		return result, errOnlyItself(e.Peers)
	}
	return result, nil
}

func errOnlyItself(peers []string) error {
	return fmt.Errorf("the list of peers names nobody but this instance (%s): give it the raft addresses of others, or leave it out to make a cluster of its own", strings.Join(peers, ", "))
}

// WaitingFor says in a sentence what Enter waits for.
func (e *Bootstrap) WaitingFor() string {
	e.mu.Lock()
	joining := e.joinStatus
	e.mu.Unlock()
	if joining != "" {
		return joining
	}
	return "looking for the cluster among the peers: " + e.discovery.Waiting() + e.peerErrors.String()
}

func (e *Bootstrap) setJoinStatus(format string, args ...any) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.joinStatus = fmt.Sprintf(format, args...)
}

// SetCluster notes the cluster's id once the founder has made it.
func (e *Bootstrap) SetCluster(cluster string) error {
	if e.Identity().Cluster == cluster {
		return nil
	}
	return e.saveIdentity(func(id *Identity) { id.Cluster = cluster })
}

// SetKnown keeps the addresses of the other instances for the next start.
func (e *Bootstrap) SetKnown(known []string) error {
	if slices.Equal(e.Identity().Known, known) {
		return nil
	}
	return e.saveIdentity(func(id *Identity) { id.Known = known })
}

// SetMetaReplica notes that the cluster has given this instance a new replica of the meta shard in place of its old one. Ids rise: an older one is what somebody says who lags.
func (e *Bootstrap) SetMetaReplica(metaReplica uint64) error {
	if metaReplica <= e.Identity().MetaReplica {
		return nil
	}
	return e.saveIdentity(func(id *Identity) { id.MetaReplica = metaReplica })
}

// SetMetaLogged notes that the log of the instance's replica of the meta shard is in the folder from now on. If it is missing later, what the replica promised is lost, and it
// must not be started again.
func (e *Bootstrap) SetMetaLogged() error {
	if id := e.Identity(); id.MetaLogged == id.MetaReplica {
		return nil
	}
	return e.saveIdentity(func(id *Identity) { id.MetaLogged = id.MetaReplica })
}

// SetExpelled notes that the cluster has expelled this instance, so that it never starts again, whoever can be asked then.
func (e *Bootstrap) SetExpelled() error {
	if e.Identity().Expelled {
		return nil
	}
	return e.saveIdentity(func(id *Identity) { id.Expelled = true })
}

// ErrExpelled says that the cluster has expelled this instance.
var ErrExpelled = errors.New("current instance is expelled from the cluster and cannot come back; to join anew, start it on a new data folder")

// InstanceStatus asks the others what the cluster knows of this instance: the id of its replica of the meta shard, 0 while it has none. It returns at the first answer that leaves
// nothing open; one by somebody who lags may be old, so that who cannot reach the meta shard asks again. It fails with ErrExpelled, or when nobody answers, which may
// be so because all of them are down.
func (e *Bootstrap) InstanceStatus(ctx context.Context) (metaReplica uint64, err error) {
	id := e.Identity()
	if len(id.Known) == 0 {
		return 0, errors.New("no other instance is known")
	}
	ctx, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()
	type result struct {
		who instanceStatusReply
		err error
	}
	results := make(chan result, len(id.Known))
	for _, address := range id.Known {
		go func() {
			var r result
			b, err := e.Transport.Call(ctx, address, methodInstanceStatus, encode(&instanceStatusRequest{UUID: id.UUID}))
			if err == nil {
				err = decode(b, &r.who)
			}
			r.err = err
			results <- r
		}()
	}
	answered := false
	for range id.Known {
		r := <-results
		switch {
		case r.err != nil:
			err = r.err
		case r.who.Expelled:
			return 0, ErrExpelled
		case r.who.MetaReplica >= id.MetaReplica:
			return r.who.MetaReplica, nil
		default:
			answered = answered || r.who.MetaReplica == 0 // a lower id is what the cluster has given before
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

// AnnounceLeader lets others that look for their peers know where to join: at the address that leader gives, empty while none is known.
func (e *Bootstrap) AnnounceLeader(leader func() string) { e.discovery.Finish(leader) }

// join asks at an address to be taken in, and goes on asking, there and at what others say, since the one that is asked may be away for a while, or for good. It may be
// asked twice: the uuid makes it once. Sponsor is who has taken it in.
func (e *Bootstrap) join(ctx context.Context, address string) (reply JoinReply, sponsor string, err error) {
	r := e.Request
	r.UUID, r.RaftAddress, r.Cluster = e.Identity().UUID, e.Advertise, e.Cluster
	e.setJoinStatus("asking the instance at %s to be taken in", address)
	for pause := joinPause; ; pause = min(2*pause, joinPauseMost) {
		reply, err = e.requestJoin(ctx, address, &r)
		if err == nil {
			return reply, address, nil
		}
		var refused *protocol.Error
		if errors.As(err, &refused) && !protocol.Retryable(err) {
			return reply, address, fmt.Errorf("the cluster at %s does not take this instance in: %w", address, err)
		}
		e.setJoinStatus("asking to be taken in; the instance at %s has not done so: %v", address, err)
		e.Logger.Warn("join failed, will be retried", "address", address, "error", err)
		t := time.NewTimer(pause/2 + mathrand.N(pause/2))
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return reply, address, fmt.Errorf("join the cluster at %s: %w; the last attempt ended with: %w", address, ctx.Err(), err)
		}
		address = e.findAnother(ctx, address)
	}
}

// findAnother asks the peers once where to join now: the answer, or address if there is none.
func (e *Bootstrap) findAnother(ctx context.Context, address string) string {
	ctx, cancel := context.WithTimeout(ctx, discovery.CallTimeout)
	defer cancel()
	peers := slices.Clone(e.Peers)
	for _, p := range e.Identity().Peers {
		if !slices.Contains(peers, p) {
			peers = append(peers, p)
		}
	}
	peers = slices.DeleteFunc(peers, func(p string) bool { return p == e.Advertise })
	leaders := make(chan string, len(peers))
	q := discovery.Request{ID: NewUUID(), Peers: []string{e.Advertise}}
	for _, p := range peers {
		go func() {
			a, _ := discoveryClient{e.Transport, nil}.Discover(ctx, p, q)
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

func (e *Bootstrap) requestJoin(ctx context.Context, address string, r *JoinRequest) (reply JoinReply, err error) {
	ctx, cancel := context.WithTimeout(ctx, joinTimeout)
	defer cancel()
	b, err := e.Transport.Call(ctx, address, methodJoin, encode(r))
	if err != nil {
		return reply, err
	}
	if err := decode(b, &reply); err != nil {
		return reply, err
	}
	if reply.Cluster == "" || reply.Instance == 0 || reply.MetaReplica == 0 {
		return reply, errors.New("the answer names no instance")
	}
	return reply, nil
}

// discoveryClient brings discovery's questions over the links. What went wrong is kept for whoever wants to know why there is no result.
type discoveryClient struct {
	links  Transport
	silent *peerErrors
}

// Ask implements discovery.Transport.
func (a discoveryClient) Discover(ctx context.Context, address string, q discovery.Request) (discovery.Response, error) {
	w := discoverRequest{AddressedAs: address, ID: q.ID, Voter: q.Voter, Peers: q.Peers, Votable: q.Votable}
	b, err := a.links.Call(ctx, address, methodDiscover, encode(&w))
	var d discoverReply
	if err == nil {
		err = decode(b, &d)
	}
	a.silent.record(ctx, address, err)
	if err != nil {
		return discovery.Response{}, err
	}
	return discovery.Response{Leader: d.Leader, Retry: d.Undecided, Peers: d.Peers, Votable: d.Votable}, nil
}

// peerErrors is why peers did not answer, the last time they were asked.
type peerErrors struct {
	log        *slog.Logger
	probe      func(ctx context.Context, address string) error // may be nil
	configured []string                                        // peers that the operator gave, without this instance
	fatal      chan error                                      // has room for one: why asking again is of no use

	mu     sync.Mutex
	errors map[string]error
	probed map[string]time.Time
}

// refusals are what only a change of the configuration, here or there, mends.
var rejections = []error{peer.ErrToken, peer.ErrVersion, peer.ErrCluster}

func isRejection(err error) bool {
	return slices.ContainsFunc(rejections, func(r error) bool { return errors.Is(err, r) })
}

// record keeps the outcome of a question. A refusal is logged, and stays until the peer answers: a peer that has refused often enough lets the next question wait. When
// all peers given refuse, or one address is none of a peer, there is nothing to wait for.
func (s *peerErrors) record(ctx context.Context, address string, err error) {
	if s == nil || errors.Is(err, context.Canceled) {
		return
	}
	if err != nil && !isRejection(err) && s.shouldProbe(address, err) {
		if what := s.probe(context.WithoutCancel(ctx), address); what != nil {
			err = what
			s.fail(fmt.Errorf("peer %s is none: %w", address, what))
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	old := s.errors[address]
	switch {
	case err == nil:
		delete(s.errors, address)
		return
	case isRejection(old) && !isRejection(err):
		return
	}
	s.errors[address] = err
	if !isRejection(err) {
		return
	}
	if !isRejection(old) {
		s.log.Warn("a peer refuses this instance", "address", address, "error", err)
	}
	if !slices.ContainsFunc(s.configured, func(p string) bool { return !isRejection(s.errors[p]) }) {
		s.fail(fmt.Errorf("all peers refuse this instance, %s: %w", address, err))
	}
}

// shouldProbe says that an address may be probed: it was given by the operator, something listens there that does not answer like an instance, and it was not probed just now.
func (s *peerErrors) shouldProbe(address string, err error) bool {
	var answered *protocol.Error
	var dial *net.OpError
	if a, plain := err.(*protocol.Error); plain {
		answered = a
	}
	if s.probe == nil || answered != nil || errors.As(err, &dial) && dial.Op == "dial" || !slices.Contains(s.configured, address) {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if time.Since(s.probed[address]) < probePeriod {
		return false
	}
	s.probed[address] = time.Now()
	return true
}

func (s *peerErrors) fail(err error) {
	select {
	case s.fatal <- err:
	default: // one is enough
	}
}

// String is a clause for the end of an error's text.
func (s *peerErrors) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.errors) == 0 {
		return ""
	}
	var b strings.Builder
	b.WriteString("; peers that did not answer:")
	for i, address := range slices.Sorted(maps.Keys(s.errors)) {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, " %s (%v)", address, s.errors[address])
	}
	return b.String()
}
