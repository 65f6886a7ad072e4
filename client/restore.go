package client

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/signalbox-dev/signalbox/protocol"
)

// Saved is what another process needs to take a session over. The key is a secret. A saved state is
// good for one restore.
type Saved struct {
	Node       string `json:"node"` // path
	Session    uint64 `json:"session_id"`
	Key        []byte `json:"key"`
	Generation uint32 `json:"generation"` // how often it was restored
}

// Each restore of a session begins a generation. Generations are far apart, so that a successor
// never uses an attach epoch or a request number of the holder before it, whatever that one did
// after it was saved. Two successors of one saved state would share a generation: the server takes
// the first and refuses the second, by their nonces.
const (
	generationEpochs  = 1 << 32
	generationNumbers = 1 << 40
)

// Save returns what Client.Restore needs. It is the same as long as this Session lives, and good
// for one restore: the process that restored the session saves again. See Restore for when.
func (s *Session) Save() Saved {
	return Saved{Node: s.node.path, Session: s.id, Key: slices.Clone(s.key[:]), Generation: s.generation}
}

// Restore takes over a session that was started elsewhere and still lives, with what it holds and
// waits for. The former holder gets ErrTakenOver. Acquire the same names with the same counts or
// less to get the leases back, which is answered at once; Session.Release releases what is not
// wanted. Errors: ErrSessionExpired; BadSession when the key is wrong, or the session was restored
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
	if len(saved.Key) != protocol.KeyLen || saved.Session == 0 {
		return nil, fmt.Errorf("what was saved is no session: it needs an id and a key of %d bytes", protocol.KeyLen)
	}
	info, err := c.resolve(ctx, saved.Node)
	if err != nil {
		return nil, withSession("restore", saved.Session, err)
	}
	if err := c.checkSessionID(ctx, saved.Session); err != nil {
		return nil, withSession("restore", saved.Session, err)
	}
	s := c.newSession(saved.Node, info, o)
	s.id, s.generation = saved.Session, saved.Generation+1
	copy(s.key[:], saved.Key)
	s.epoch = uint64(s.generation) * generationEpochs
	s.seqs.reset(uint64(s.generation)*generationNumbers + 1)
	s.nonce = c.beginRestore(s)
	if err := s.restore(ctx); err != nil {
		if !answered(err) {
			c.restoreUnanswered(s)
		}
		s.cancel(err)
		return nil, withSession("restore", saved.Session, err)
	}
	return s, nil
}

// restoreKey names a restore: of a session, from one saved state.
type restoreKey struct {
	session    uint64
	generation uint32
}

// beginRestore gives the nonce of a restore: that of an earlier attempt of this client which was
// not answered, so that this one goes on with it, or else a new one.
func (c *Client) beginRestore(s *Session) uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	x := restoreKey{s.id, s.generation}
	nonce, ok := c.restores[x]
	if !ok {
		return s.nonce
	}
	delete(c.restores, x) // for one: two restores at a time are two holders
	return nonce
}

// restoreUnanswered notes that the server may have the session for a holder that was given up.
func (c *Client) restoreUnanswered(s *Session) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.restores == nil {
		c.restores = make(map[restoreKey]uint64)
	}
	c.restores[restoreKey{s.id, s.generation}] = s.nonce
}

// restore attaches the session. All tries have one epoch and one nonce: an epoch for each would let
// a later try overtake the attach of another successor of the same saved state.
func (s *Session) restore(ctx context.Context) error {
	retry := backoff{base: retryBase, max: retryMax}
	epoch := s.nextEpoch()
	var last error
	for {
		cn, reply, sent, err := s.sendAttach(ctx, epoch)
		switch {
		case err == nil:
			return s.activate(sent, cn, reply, last != nil)
		case s.c.ctx.Err() != nil:
			return ErrClientClosed
		case ctx.Err() != nil:
			if cn != nil {
				// It may be attached there, and would be kept alive for nobody.
				cn.end(errors.New("a restore on it was given up"))
			}
			return interrupted(ctx, last)
		case !canResend(err):
			return err
		}
		last = err
		s.c.waitRetry(ctx, s.home(), cn, err, &retry)
	}
}
