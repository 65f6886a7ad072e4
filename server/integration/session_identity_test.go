package integration

import (
	"errors"
	"testing"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server/servertest/await"
)

// TestOtherIdentity: a session is of no use to another identity, whatever of it that identity has: its
// id, its key, its ticket.
func TestOtherIdentity(t *testing.T) {
	t.Parallel()
	s := guarded(t, nil)
	root := adminClient(t, s, rootSecret)
	a, m := issue(t, root, "alice"), issue(t, root, "mallory")
	for _, who := range []string{"alice", "mallory"} {
		grant(t, root, who, "/default", "use")
	}
	await.True(t, "the rights", func() bool {
		c, _, err := greet(t, s, m)
		return err == nil && c.call(protocol.KindNodeDescribe, 0, &protocol.NodeDescribe{Path: "/default"}, &protocol.NodeInfo{}) == nil
	})
	alice, mallory := as(t, s, a), as(t, s, m)
	node := alice.node()
	r := alice.session(node, 1)
	if _, err := mallory.attach(node, 1, r.Session, 2); !errors.Is(err, protocol.StatusBadSession) {
		t.Errorf("attach from another identity, with the key: %v", err)
	}
	if _, err := mallory.lock(node, r.Session, "x", 0); !errors.Is(err, protocol.StatusBadSession) {
		t.Errorf("acquire from another identity: %v", err)
	}
	mallory.fails(protocol.StatusBadSession, protocol.KindSessionStop, uint64(protocol.SessionBucket(r.Session)),
		&protocol.SessionStop{Session: r.Session})
	mallory.fails(protocol.StatusBadSession, protocol.KindPresentTicket, 0, &protocol.PresentTicket{Ticket: r.Ticket})
	if _, err := alice.lock(node, r.Session, "x", 0); err != nil {
		t.Fatal(err)
	}
	// A start with the same create id and key is somebody else's too.
	again := &protocol.SessionStart{Node: node, CreateID: id16(1), Key: id16(1), Timeout: mallory.timeout(), Description: "raw", Nonce: 2}
	var other protocol.SessionReply
	if err := mallory.call(protocol.KindSessionStart, mallory.homeBucket(again.CreateID), again,
		&other); err == nil && other.Session == r.Session {
		t.Error("a start from another identity was given the session")
	}
	// Another connection of the same identity may have it, with the key; and another token of it.
	token, err := root.CreateToken(t.Context(), "", "alice")
	if err != nil {
		t.Fatal(err)
	}
	var second *raw
	await.True(t, "the second token", func() bool {
		c, _, err := greet(t, s, token.Secret)
		second = c
		return err == nil
	})
	if _, err := second.attach(node, 1, r.Session, 2); err != nil {
		t.Errorf("attach from the same identity: %v", err)
	}
}

// TestLoweredRight: an identity whose right was lowered to read acquires nothing more, and gives back
// what it holds.
func TestLoweredRight(t *testing.T) {
	t.Parallel()
	s := guarded(t, nil)
	root := adminClient(t, s, rootSecret)
	secret := issue(t, root, "alice")
	grant(t, root, "alice", "/default", "use")
	boss := as(t, s, rootSecret)
	alice := as(t, s, secret)
	node := boss.node()
	var r protocol.SessionReply
	await.True(t, "the right to use", func() bool {
		return alice.call(protocol.KindNodeDescribe, 0, &protocol.NodeDescribe{Path: "/default"}, &protocol.NodeInfo{}) == nil
	})
	r = alice.session(node, 1)
	if _, err := alice.lock(node, r.Session, "x", 0); err != nil {
		t.Fatal(err)
	}
	grant(t, root, "alice", "/default", "read")
	alice.closed()
	alice = as(t, s, secret)
	if _, err := alice.attach(node, 1, r.Session, 2); err != nil {
		t.Fatal(err)
	}
	head := protocol.Head{Session: r.Session, Seq: 50, Low: 50}
	alice.fails(protocol.StatusForbidden, protocol.KindAcquire, alice.bucket(node, "y"),
		&protocol.Acquire{Head: head, Name: []byte("y"), Count: 1, Ephemeral: true})
	var released protocol.ReleaseReply
	alice.must(protocol.KindRelease, alice.bucket(node, "x"), &protocol.Release{Head: head, Name: []byte("x")}, &released)
	if d, err := boss.describe(node, "x", protocol.Strict); !released.Released || err == nil && d.NumOwners != 0 {
		t.Errorf("released %v; the lock has %d owners, %v", released.Released, d.NumOwners, err)
	}
}
