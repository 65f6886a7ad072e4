package cluster

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server/governor"
	"github.com/signalbox-dev/signalbox/server/peer"
)

func newTestBootstrap(t *testing.T, store Store, l *fakeTransport, peers ...string) *Bootstrap {
	t.Helper()
	e := &Bootstrap{Store: store, Transport: l, Advertise: "j:1", Voter: true, Peers: peers, Logger: slog.New(slog.DiscardHandler)}
	if err := e.Start(); err != nil {
		t.Fatal(err)
	}
	return e
}

// says answers every who-question.
func says(w instanceStatusReply) func(context.Context, uint8, []byte) ([]byte, error) {
	return func(context.Context, uint8, []byte) ([]byte, error) { return encode(&w), nil }
}

func TestInstanceStatus(t *testing.T) {
	type answers = map[string]func(context.Context, uint8, []byte) ([]byte, error)
	for _, x := range []struct {
		what    string
		answers answers
		want    uint64
		err     string
	}{
		{"the same", answers{"a:1": says(instanceStatusReply{MetaReplica: 4})}, 4, ""},
		{"a newer one", answers{"b:1": says(instanceStatusReply{MetaReplica: 9})}, 9, ""},
		{"none at the moment", answers{"a:1": says(instanceStatusReply{}), "b:1": says(instanceStatusReply{})}, 0, ""},
		{"those that lag say an older one", answers{"a:1": says(instanceStatusReply{MetaReplica: 3}), "b:1": says(instanceStatusReply{MetaReplica: 2})}, 0, "do not know yet"},
		{"and another knows", answers{"a:1": says(instanceStatusReply{MetaReplica: 3}), "b:1": says(instanceStatusReply{MetaReplica: 9})}, 9, ""},
		{"expelled", answers{"b:1": says(instanceStatusReply{Expelled: true})}, 0, "current instance is expelled from the cluster"},
		{"nobody", nil, 0, "nobody answers"},
	} {
		store := new(memoryStore)
		if err := SaveIdentity(store, Identity{UUID: "u", Cluster: "c", Instance: 2, MetaReplica: 4,
			RaftAddress: "j:1", Known: []string{"a:1", "b:1"}}); err != nil {
			t.Fatal(err)
		}
		got, err := newTestBootstrap(t, store, &fakeTransport{answers: x.answers}).InstanceStatus(t.Context())
		if got != x.want || (err == nil) != (x.err == "") || err != nil && !strings.Contains(err.Error(), x.err) {
			t.Errorf("%s: %d, %v", x.what, got, err)
		}
	}
}

func TestIdentityNeverGoesBack(t *testing.T) {
	store := new(memoryStore)
	if err := SaveIdentity(store, Identity{UUID: "u", Cluster: "c", Instance: 2, MetaReplica: 4, RaftAddress: "j:1"}); err != nil {
		t.Fatal(err)
	}
	e := newTestBootstrap(t, store, &fakeTransport{})
	for _, id := range []uint64{3, 6, 5} {
		if err := e.SetMetaReplica(id); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(e.SetMetaLogged(), e.SetExpelled()); err != nil {
		t.Fatal(err)
	}
	id, found, err := LoadIdentity(store)
	if err != nil || !found || id.MetaReplica != 6 || id.MetaLogged != 6 || !id.Expelled {
		t.Errorf("%+v, %v", id, err)
	}
	if _, _, err := newTestBootstrap(t, store, &fakeTransport{}).Run(t.Context()); !errors.Is(err, ErrExpelled) {
		t.Errorf("an expelled folder: %v", err)
	}
	store.err = errDisk
	if err := e.SetMetaReplica(7); !errors.Is(err, errDisk) || e.Identity().MetaReplica != 6 {
		t.Errorf("what is not on disk is believed: %v, %+v", err, e.Identity())
	}
	other := &Bootstrap{Store: &memoryStore{b: store.b}, Transport: &fakeTransport{}, Advertise: "k:1",
		Logger: slog.New(slog.DiscardHandler)}
	if err := other.Start(); err == nil || !strings.Contains(err.Error(), "known to the others as j:1") {
		t.Errorf("a copy elsewhere: %v", err)
	}
}

// TestJoinAddressDies: the instance that discovery has found dies before it takes this one in.
// Another one does, and is asked after a restart.
func TestJoinAddressDies(t *testing.T) {
	store := new(memoryStore)
	l := &fakeTransport{}
	dead := false
	l.answers = map[string]func(context.Context, uint8, []byte) ([]byte, error){
		"a:1": func(_ context.Context, method uint8, _ []byte) ([]byte, error) {
			if method == methodDiscover && !dead {
				return encode(&discoverReply{Leader: "a:1"}), nil
			}
			dead = true
			return nil, protocol.Errorf(protocol.StatusUnavailable, "gone")
		},
		"b:1": func(_ context.Context, method uint8, _ []byte) ([]byte, error) {
			switch {
			case method == methodJoin:
				return encode(&JoinReply{Cluster: "c", Instance: 5, MetaReplica: 6}), nil
			case dead:
				return encode(&discoverReply{Leader: "b:1"}), nil
			}
			return encode(&discoverReply{Undecided: true}), nil
		},
		"j:1": func(context.Context, uint8, []byte) ([]byte, error) {
			return nil, protocol.Errorf(protocol.StatusUnavailable, "starting")
		},
	}
	mu := &l.mu
	for address, f := range l.answers {
		l.answers[address] = func(ctx context.Context, method uint8, body []byte) ([]byte, error) {
			mu.Lock()
			defer mu.Unlock()
			return f(ctx, method, body)
		}
	}
	id, joined, err := newTestBootstrap(t, store, l, "a:1", "b:1").Run(t.Context())
	if err != nil || !joined || id.Instance != 5 || id.MetaReplica != 6 || !slices.Equal(id.Known, []string{"b:1"}) || id.Peers != nil {
		t.Errorf("%+v, %v, %v", id, joined, err)
	}
}

// TestLearnedPeersAreKept: peers that were learned from others are still known after a crash.
func TestLearnedPeersAreKept(t *testing.T) {
	store, l := new(memoryStore), new(fakeTransport)
	newTestBootstrap(t, store, l, "j:1", "a:1")
	ask := &discoverRequest{AddressedAs: "j:1", ID: governor.NewUUID(), Voter: true,
		Peers: []string{"a:1", "z:1"}, Votable: []string{"z:1"}}
	if _, err := l.handles[methodDiscover](t.Context(), "z:1", encode(ask)); err != nil {
		t.Fatal(err)
	}
	if id, _, err := LoadIdentity(store); err != nil || !slices.Contains(id.Peers, "z:1") {
		t.Fatalf("%+v, %v", id, err)
	}
	store.err = errDisk
	ask.Peers = append(ask.Peers, "y:1")
	if _, err := l.handles[methodDiscover](t.Context(), "z:1", encode(ask)); err == nil {
		t.Error("it tells of what it could not keep")
	}
	store.err = nil
	again := new(fakeTransport)
	newTestBootstrap(t, store, again, "j:1", "a:1")
	b, err := again.handles[methodDiscover](t.Context(), "a:1",
		encode(&discoverRequest{AddressedAs: "j:1", ID: governor.NewUUID(), Peers: []string{"a:1"}}))
	var answer discoverReply
	if err == nil {
		err = decode(b, &answer)
	}
	if err != nil || !slices.Contains(answer.Peers, "z:1") {
		t.Errorf("after a restart: %+v, %v", answer, err)
	}
}

// TestStartingMemberHasNoVote: an instance that belongs to a cluster, or is about to make one
// alone, does not answer as if it had none, not even before it can name a leader. Otherwise a new
// one could make another cluster.
func TestStartingMemberHasNoVote(t *testing.T) {
	used := new(memoryStore)
	if err := SaveIdentity(used, Identity{UUID: "u", Cluster: "c", Instance: 2, MetaReplica: 2, RaftAddress: "j:1"}); err != nil {
		t.Fatal(err)
	}
	for what, x := range map[string]struct {
		store Store
		peers []string
	}{
		"a used folder":                {used, []string{"j:1", "a:1"}},
		"a used folder, without peers": {used, nil},
		"a new one, without peers":     {new(memoryStore), nil},
	} {
		l := new(fakeTransport)
		e := newTestBootstrap(t, x.store, l, x.peers...)
		ask := func() (a discoverReply) {
			b, err := l.handles[methodDiscover](t.Context(), "a:1",
				encode(&discoverRequest{AddressedAs: "j:1", ID: governor.NewUUID(), Voter: true, Peers: []string{"a:1", "j:1"}}))
			if err == nil {
				err = decode(b, &a)
			}
			if err != nil {
				t.Errorf("%s: %v", what, err)
			}
			return a
		}
		if a := ask(); !a.Undecided || a.Votable != nil || a.Leader != "" {
			t.Errorf("%s: %+v", what, a)
		}
		if why := e.WaitingFor(); strings.Contains(why, "looking for the cluster") {
			t.Errorf("%s waits: %s", what, why)
		}
		if id, _, err := e.Run(t.Context()); err != nil || !id.Joined() {
			t.Errorf("%s: %+v, %v", what, id, err)
		}
		if a := ask(); !a.Undecided {
			t.Errorf("%s, before its cluster is made: %+v", what, a)
		}
		e.AnnounceLeader(func() string { return "j:1" })
		if a := ask(); a.Leader != "j:1" || a.Undecided {
			t.Errorf("%s, with a leader: %+v", what, a)
		}
	}
}

// TestRaftAddressIsThisMachines: a new folder is not given a raft address that leads its peers to
// themselves. A used one starts as it did.
func TestRaftAddressIsThisMachines(t *testing.T) {
	for _, x := range []struct {
		address string
		peers   []string
		refused bool
	}{
		{"0.0.0.0:7071", nil, false},
		{"0.0.0.0:7071", []string{"127.0.0.1:7171"}, true},
		{"[::]:7071", []string{"b:7071"}, true},
		{"127.0.0.1:7071", nil, false},
		{"127.0.0.1:7071", []string{"127.0.0.1:7071", "[::1]:7171", "localhost:7271"}, false},
		{"127.0.0.1:7071", []string{"127.0.0.1:7071", "10.0.0.2:7071"}, true},
		{"localhost:7071", []string{"b:7071"}, true},
		{"10.0.0.1:7071", []string{"127.0.0.1:7071", "10.0.0.2:7071"}, false},
	} {
		used := new(memoryStore)
		if err := SaveIdentity(used, Identity{UUID: "u", Cluster: "c", Instance: 2, MetaReplica: 2, RaftAddress: x.address}); err != nil {
			t.Fatal(err)
		}
		start := func(s Store) error {
			return (&Bootstrap{Store: s, Transport: new(fakeTransport), Advertise: x.address, Voter: true, Peers: x.peers,
				Logger: slog.New(slog.DiscardHandler)}).Start()
		}
		fresh := new(memoryStore)
		err := start(fresh)
		if (err != nil) != x.refused || err != nil && !strings.Contains(err.Error(), "--raft-advertise") {
			t.Errorf("%s, peers %v: %v", x.address, x.peers, err)
		}
		if _, found, _ := LoadIdentity(fresh); found == x.refused {
			t.Errorf("%s, peers %v: the folder keeps it: %v", x.address, x.peers, found)
		}
		if err := start(used); err != nil {
			t.Errorf("%s, peers %v, a used folder: %v", x.address, x.peers, err)
		}
	}
}

func newPeerErrors(probe func(context.Context, string) error, given ...string) *peerErrors {
	return &peerErrors{
		log: slog.New(slog.DiscardHandler), probe: probe, configured: given, errors: map[string]error{},
		probed: map[string]time.Time{}, fatal: make(chan error, 1),
	}
}

func TestRejectingPeersAreNamed(t *testing.T) {
	ctx := t.Context()
	s := newPeerErrors(nil, "a:1", "b:1")
	s.record(ctx, "b:1", errDisk)
	s.record(ctx, "a:1", peer.ErrToken)
	s.record(ctx, "c:1", context.Canceled)
	s.record(ctx, "a:1", context.DeadlineExceeded) // a peer that has refused often lets others wait
	if text := s.String(); text != "peers did not answer: a:1 ("+peer.ErrToken.Error()+"), b:1 ("+errDisk.Error()+"); " {
		t.Error(text)
	}
	s.record(ctx, "a:1", nil)
	s.record(ctx, "b:1", nil)
	if s.String() != "" {
		t.Error(s)
	}
	if len(s.fatal) > 0 {
		t.Errorf("one peer of two has refused, and it ends with %v", <-s.fatal)
	}
}

// TestWhatEndsDiscovery: only what waiting cannot mend ends the look for a cluster, and then the
// reason is the error.
func TestWhatEndsDiscovery(t *testing.T) {
	refuses := func(why error) func(context.Context, uint8, []byte) ([]byte, error) {
		return func(context.Context, uint8, []byte) ([]byte, error) { return nil, why }
	}
	leads := func(_ context.Context, method uint8, _ []byte) ([]byte, error) {
		if method == methodJoin {
			return encode(&JoinReply{Cluster: "c", Instance: 5, MetaReplica: 6}), nil
		}
		return encode(&discoverReply{Leader: "b:1"}), nil
	}
	silent := func(ctx context.Context, _ uint8, _ []byte) ([]byte, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	type answers = map[string]func(context.Context, uint8, []byte) ([]byte, error)
	for _, x := range []struct {
		what    string
		peers   []string
		answers answers
		probe   error
		err     string // empty: it is taken in; "waits": it is not, and goes on
	}{
		{"all refuse the token", []string{"a:1", "b:1", "j:1"}, answers{"a:1": refuses(peer.ErrToken), "b:1": refuses(peer.ErrToken)}, nil, "all peers refuse this instance"},
		{"one refuses, one is down", []string{"a:1", "b:1"}, answers{"a:1": refuses(peer.ErrToken)}, nil, "waits"},
		{"one refuses, one leads", []string{"a:1", "b:1"}, answers{"a:1": refuses(peer.ErrToken), "b:1": leads}, nil, ""},
		{"one refuses, an own name does not", []string{"a:1", "localhost:1"}, answers{"a:1": refuses(peer.ErrVersion)}, nil, "waits"},
		{"clients connect there", []string{"a:1", "b:1"}, answers{"a:1": silent}, ErrClientAddress, "peer a:1 is none: it is an address for clients"},
		{"operators look there", []string{"a:1"}, answers{"a:1": silent}, ErrAdminAddress, "peer a:1 is none: an HTTP server answers there"},
		{"nothing is known of it", []string{"a:1"}, answers{"a:1": silent}, nil, "waits"},
		{"it answers, and cannot yet", []string{"a:1"}, nil, ErrClientAddress, "waits"},
		{"nobody, and it may not make the cluster", nil, nil, nil, "an instance of tier arbiter makes no cluster"},
		{"only itself", []string{"j:1"}, nil, nil, "nobody but this instance (j:1)"},
		{"only itself, by two names", []string{"j:1", "localhost:1"}, nil, nil, "nobody but this instance (j:1, localhost:1)"},
	} {
		synctest.Test(t, func(t *testing.T) {
			l := &fakeTransport{answers: answers{}}
			own := func(ctx context.Context, method uint8, body []byte) ([]byte, error) {
				return l.handles[method](ctx, "j:1", body)
			}
			l.answers["j:1"], l.answers["localhost:1"] = own, own
			maps.Copy(l.answers, x.answers)
			e := &Bootstrap{
				Store: new(memoryStore), Transport: l, Advertise: "j:1", Voter: len(x.peers) > 0, Peers: x.peers,
				Logger: slog.New(slog.DiscardHandler), Request: JoinRequest{Tier: "arbiter"},
				Probe: func(context.Context, string) error { return x.probe },
			}
			if err := e.Start(); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			defer cancel()
			_, joined, err := e.Run(ctx)
			switch {
			case x.err == "waits":
				if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(e.WaitingFor(), "a:1") {
					t.Errorf("%s: %v; it waits: %s", x.what, err, e.WaitingFor())
				}
			case x.err == "":
				if err != nil || !joined {
					t.Errorf("%s: %v", x.what, err)
				}
			case err == nil || !strings.Contains(err.Error(), x.err) || ctx.Err() != nil:
				t.Errorf("%s: %v, want %q before the hour is over", x.what, err, x.err)
			}
		})
	}
}
