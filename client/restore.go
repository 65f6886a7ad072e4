package client

import (
	"context"
	"fmt"

	"github.com/signalbox-dev/signalbox/client/internal/core"
	"github.com/signalbox-dev/signalbox/client/internal/driver"
	"github.com/signalbox-dev/signalbox/client/internal/handle"
	"github.com/signalbox-dev/signalbox/protocol"
)

// Saved is what another process needs to take a session over. The key is a secret. A saved state is
// good for one restore.
type Saved struct {
	Node       string `json:"node"` // path
	Session    uint64 `json:"session_id"`
	Key        []byte `json:"key"`
	Generation uint32 `json:"generation"` // how often it was restored
	Version    int    `json:"version,omitempty"`
}

// SavedVersion is the Version of Saved. A client must not take over a session with a higher one.
// Version 0 has no leases with a bound.
const SavedVersion = 1

// Each restore of a session begins a generation. Generations are far apart, so that a successor
// never uses an attach epoch or a request number of the holder before it, even if that worked on
// after it was saved. Two successors of one saved state would share a generation: the server takes
// the first and refuses the second, by their nonces.
const (
	generationEpochs  = 1 << 32
	generationNumbers = 1 << 40
)

// Restore takes over a session that was started elsewhere and still lives, with what it holds and
// waits for. The former holder gets ErrTakenOver. Acquire the same names with the same or lower
// counts to get the leases back, which is answered at once; Session.Release releases the others.
// Errors: ErrSessionExpired; ErrBadSession when the key is wrong, or the session was restored
// before from the same state or a later one.
//
// A saved state is good for one restore, because two holders would take each other's answers and
// leases for their own. A holder that may have a successor saves again. Its state is known before
// it restores: it is the same with a Generation that is one higher. A program that may be killed at
// any moment writes that state down first, and then calls Restore with the old one. Whatever
// happens to it, its successor can restore what was written. A program that writes the result of
// Save after Restore has returned leaves the session to its timeout if it is killed in between.
//
// When ctx ends before the server has answered, the same Client may call Restore again with the
// same state. Another Client, or another process, raises Generation by one first.
func (c *Client) Restore(ctx context.Context, saved Saved, opts ...SessionOption) (*Session, error) {
	o, err := sessionOptionsOf(opts)
	if err != nil {
		return nil, err
	}
	if saved.Version > SavedVersion {
		return nil, fmt.Errorf("what was saved has version %d, and this client knows versions up to %d; use a newer one",
			saved.Version, SavedVersion)
	}
	if len(saved.Key) != protocol.KeyLen || saved.Session == 0 {
		return nil, fmt.Errorf("invalid saved session: it needs an id and a key of %d bytes", protocol.KeyLen)
	}
	info, err := c.handle().Node(ctx, saved.Node)
	if err != nil {
		return nil, handle.AboutSession("restore", saved.Session, err)
	}
	n := c.node(saved.Node, info)
	if err := n.h.CheckSession(ctx, saved.Session); err != nil {
		return nil, handle.AboutSession("restore", saved.Session, err)
	}
	s := c.newSessionOn(&n, o)
	s.generation = saved.Generation + 1
	copy(s.d.Key[:], saved.Key)
	r := s.d.Restore(ctx, saved.Session, &core.Restore{
		Epoch: uint64(s.generation)*generationEpochs + 1, First: uint64(s.generation)*generationNumbers + 1,
	})
	if r.Err != nil {
		err := handle.AboutSession("restore", saved.Session, driver.Err(r))
		s.d.Drop(err)
		return nil, err
	}
	return s, nil
}
