package client

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/signalbox-dev/signalbox/protocol"
)

// Saved is what another process needs to take a session over. The key is a secret.
type Saved struct {
	Node       string `json:"node"` // path
	Session    uint64 `json:"session_id"`
	Key        []byte `json:"key"`
	Generation uint32 `json:"generation"` // how often it was restored
}

// Each restore of a session counts in generations that are far apart, so that it never uses an attach epoch or a request number of its predecessor, whatever that did
// after it was saved.
const (
	generationEpochs  = 1 << 32
	generationNumbers = 1 << 40
)

// Save gives what Client.Restore needs. It stays the same while the session lives.
func (s *Session) Save() Saved {
	return Saved{Node: s.node.path, Session: s.id, Key: slices.Clone(s.key[:]), Generation: s.generation}
}

// Restore takes over a session that was started elsewhere and still lives: what it holds and waits for stays. Who had it is told ErrTakenOver. Leases are made anew by
// acquiring the same names with the same counts or less, which is answered at once; what is not wanted is given back with Session.Release. Errors: ErrSessionExpired;
// BadSession when the key is wrong, or another process restored it from the same state first.
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
		return nil, aboutSession("restore", saved.Session, err)
	}
	if err := c.possible(ctx, saved.Session); err != nil {
		return nil, aboutSession("restore", saved.Session, err)
	}
	s := c.newSession(saved.Node, info, o)
	s.id, s.generation = saved.Session, saved.Generation+1
	copy(s.key[:], saved.Key)
	s.epoch = uint64(s.generation) * generationEpochs
	s.numbers.reset(uint64(s.generation)*generationNumbers + 1)
	if err := s.restore(ctx); err != nil {
		s.cancel(err)
		return nil, aboutSession("restore", saved.Session, err)
	}
	return s, nil
}

func (s *Session) restore(ctx context.Context) error {
	retry := backoff{base: retryBase, max: retryMax}
	var last error
	for {
		cn, reply, sent, err := s.sendAttach(ctx)
		switch {
		case err == nil:
			return s.begin(sent, cn, reply)
		case s.c.ctx.Err() != nil:
			return ErrClientClosed
		case ctx.Err() != nil:
			if cn != nil {
				// It may be attached there, and would be kept alive for nobody.
				cn.end(errors.New("a restore on it was given up"))
			}
			return interrupted(ctx, last)
		case !again(err):
			return err
		}
		last = err
		s.c.pause(ctx, s.home(), cn, err, &retry)
	}
}
