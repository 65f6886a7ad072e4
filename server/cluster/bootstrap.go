package cluster

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server/governor"
	"github.com/signalbox-dev/signalbox/server/peerdiscovery"
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
	// Probe finds out which service answers at the address of a peer that does not; see the
	// function Probe. Nil for addresses that are not TCP.
	Probe  func(ctx context.Context, address string) error
	Logger *slog.Logger

	discovery  *peerdiscovery.Discovery
	peerErrors *peerErrors

	mu         sync.Mutex
	id         Identity // as on disk
	joinStatus string   // the reason why the join waits; empty before
	unreached  string   // which instance does not reach this one, and why; empty: none said so
}

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
	b.discovery, err = peerdiscovery.New(peerdiscovery.Config{
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
		a, err := b.discovery.Handle(peerdiscovery.Request{ID: w.ID, Voter: w.Voter, Peers: w.Peers,
			Votable: w.Votable},
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
	result := peerdiscovery.Result{Bootstrap: true}
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
func (b *Bootstrap) discover(started context.Context) (peerdiscovery.Result, error) {
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
		return result, fmt.Errorf("discover the cluster: %s%w", b.peerErrors.String(), err)
	case result.Bootstrap && len(b.Peers) > 0 && b.discovery.Alone():
		return result, errOnlyItself(b.Peers)
	}
	return result, nil
}

func errOnlyItself(peers []string) error {
	return fmt.Errorf("the list of peers names nobody but this instance (%s): give it the raft addresses of others, or leave it out to make a cluster of its own", strings.Join(peers, ", "))
}

// WaitingFor describes in a sentence why Run waits.
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
	return "looking for the cluster among the peers: " + b.peerErrors.String() + why
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

// AnnounceLeader answers the discovery of others with the address to join at, which leader returns;
// empty while unknown. Until it is called, an instance of a cluster has others ask again.
func (b *Bootstrap) AnnounceLeader(leader func() string) { b.discovery.Finish(leader) }
