package cluster

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server/mesh"
)

func entryOf(t *testing.T, store Store, l *fakeLinks, peers ...string) *Entry {
	t.Helper()
	e := &Entry{Store: store, Links: l, Advertise: "j:1", Voter: true, Peers: peers, Logger: slog.New(slog.DiscardHandler)}
	if err := e.Begin(); err != nil {
		t.Fatal(err)
	}
	return e
}

// says answers every who-question.
func says(w whoAnswer) func(context.Context, uint8, []byte) ([]byte, error) {
	return func(context.Context, uint8, []byte) ([]byte, error) { return encode(&w), nil }
}

func TestWho(t *testing.T) {
	type answers = map[string]func(context.Context, uint8, []byte) ([]byte, error)
	for _, x := range []struct {
		what    string
		answers answers
		want    uint64
		err     string
	}{
		{"the same", answers{"a:1": says(whoAnswer{MetaReplica: 4})}, 4, ""},
		{"a newer one", answers{"b:1": says(whoAnswer{MetaReplica: 9})}, 9, ""},
		{"none at the moment", answers{"a:1": says(whoAnswer{}), "b:1": says(whoAnswer{})}, 0, ""},
		{"those that lag say an older one", answers{"a:1": says(whoAnswer{MetaReplica: 3}), "b:1": says(whoAnswer{MetaReplica: 2})}, 0, "do not know yet"},
		{"and another knows", answers{"a:1": says(whoAnswer{MetaReplica: 3}), "b:1": says(whoAnswer{MetaReplica: 9})}, 9, ""},
		{"expelled", answers{"b:1": says(whoAnswer{Expelled: true})}, 0, "current instance is expelled from the cluster"},
		{"nobody", nil, 0, "nobody answers"},
	} {
		store := new(memoryStore)
		if err := SaveIdentity(store, Identity{UUID: "u", Cluster: "c", Instance: 2, MetaReplica: 4, RaftAddress: "j:1", Known: []string{"a:1", "b:1"}}); err != nil {
			t.Fatal(err)
		}
		got, err := entryOf(t, store, &fakeLinks{answers: x.answers}).Who(t.Context())
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
	e := entryOf(t, store, &fakeLinks{})
	for _, id := range []uint64{3, 6, 5} {
		if err := e.Changed(id); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(e.Logged(), e.Leave()); err != nil {
		t.Fatal(err)
	}
	id, found, err := LoadIdentity(store)
	if err != nil || !found || id.MetaReplica != 6 || id.MetaLogged != 6 || !id.Expelled {
		t.Errorf("%+v, %v", id, err)
	}
	if _, _, err := entryOf(t, store, &fakeLinks{}).Enter(t.Context()); !errors.Is(err, ErrExpelled) {
		t.Errorf("an expelled folder: %v", err)
	}
	store.err = errDisk
	if err := e.Changed(7); !errors.Is(err, errDisk) || e.Identity().MetaReplica != 6 {
		t.Errorf("what is not on disk is believed: %v, %+v", err, e.Identity())
	}
	other := &Entry{Store: &memoryStore{b: store.b}, Links: &fakeLinks{}, Advertise: "k:1", Logger: slog.New(slog.DiscardHandler)}
	if err := other.Begin(); err == nil || !strings.Contains(err.Error(), "known to the others as j:1") {
		t.Errorf("a copy elsewhere: %v", err)
	}
}

// TestSponsorDies: the instance that discovery has found dies before it takes this one in; another one does, and is who is asked after a restart.
func TestSponsorDies(t *testing.T) {
	store := new(memoryStore)
	l := &fakeLinks{}
	dead := false
	l.answers = map[string]func(context.Context, uint8, []byte) ([]byte, error){
		"a:1": func(_ context.Context, method uint8, _ []byte) ([]byte, error) {
			if method == methodDiscover && !dead {
				return encode(&discoverAnswer{Leader: "a:1"}), nil
			}
			dead = true
			return nil, protocol.Errorf(protocol.StatusUnavailable, "gone")
		},
		"b:1": func(_ context.Context, method uint8, _ []byte) ([]byte, error) {
			switch {
			case method == methodJoin:
				return encode(&JoinReply{Cluster: "c", Instance: 5, MetaReplica: 6}), nil
			case dead:
				return encode(&discoverAnswer{Leader: "b:1"}), nil
			}
			return encode(&discoverAnswer{Undecided: true}), nil
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
	id, joined, err := entryOf(t, store, l, "a:1", "b:1").Enter(t.Context())
	if err != nil || !joined || id.Instance != 5 || id.MetaReplica != 6 || !slices.Equal(id.Known, []string{"b:1"}) || id.Peers != nil {
		t.Errorf("%+v, %v, %v", id, joined, err)
	}
}

// TestLearnedPeersAreKept: who has been told of others is still known after a crash.
func TestLearnedPeersAreKept(t *testing.T) {
	store, l := new(memoryStore), new(fakeLinks)
	entryOf(t, store, l, "j:1", "a:1")
	ask := &discoverWords{AddressedAs: "j:1", ID: NewUUID(), Voter: true, Peers: []string{"a:1", "z:1"}, Votable: []string{"z:1"}}
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
	again := new(fakeLinks)
	entryOf(t, store, again, "j:1", "a:1")
	b, err := again.handles[methodDiscover](t.Context(), "a:1", encode(&discoverWords{AddressedAs: "j:1", ID: NewUUID(), Peers: []string{"a:1"}}))
	var answer discoverAnswer
	if err == nil {
		err = decode(b, &answer)
	}
	if err != nil || !slices.Contains(answer.Peers, "z:1") {
		t.Errorf("after a restart: %+v, %v", answer, err)
	}
}

func TestRefusingPeersAreNamed(t *testing.T) {
	s := &silence{log: slog.New(slog.DiscardHandler), why: map[string]error{}}
	s.note("b:1", errDisk)
	s.note("a:1", mesh.ErrToken)
	s.note("c:1", context.Canceled)
	if text := s.String(); text != "; peers that did not answer: a:1 ("+mesh.ErrToken.Error()+"), b:1 ("+errDisk.Error()+")" {
		t.Error(text)
	}
	s.note("a:1", nil)
	s.note("b:1", nil)
	if s.String() != "" {
		t.Error(s)
	}
}
