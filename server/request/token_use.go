package request

import (
	"context"
	"sync"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server/transport"
	"github.com/signalbox-dev/signalbox/shard/meta"
)

const (
	// tokenCheckPeriod is how often it is noted which tokens are used.
	tokenCheckPeriod = time.Minute
	// tokenUsePrecision is how old the time of a token's last use may be. Each note is a command of
	// the meta shard.
	tokenUsePrecision = time.Hour
	// tokenUseTimeout bounds such a command; the next check records the uses that it did not.
	tokenUseTimeout = 10 * time.Second
)

// Tokens are the tokens that clients come in with.
type Tokens struct {
	server  *Server
	changed chan struct{} // capacity 1

	mu   sync.Mutex
	seen map[[meta.HashLen]byte]struct{} // since the last check, by hash
	due  time.Time                       // of the next check
}

// Changed gets an element when there are other tokens. One goroutine alone may receive it.
func (t *Tokens) Changed() <-chan struct{} { return t.changed }

func (t *Tokens) notify() {
	select {
	case t.changed <- struct{}{}:
	default:
	}
}

func (t *Tokens) add(hash [meta.HashLen]byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.seen == nil {
		t.seen = make(map[[meta.HashLen]byte]struct{})
	}
	t.seen[hash] = struct{}{}
}

// Check closes the connections of tokens that have expired, and notes which tokens are used. It
// returns how long to wait for the next check.
func (t *Tokens) Check(ctx context.Context, now time.Time) time.Duration {
	v := t.server.auth.Load()
	if v == nil || t.server.cfg.Authenticator != nil {
		return tokenCheckPeriod
	}
	expired, next := v.Expired(now), min(tokenCheckPeriod, v.NextExpiry(now))
	t.setDue(now.Add(next)) // connections that come meanwhile are found below, or ask for another check
	t.server.EachClient(func(c *Client) {
		by := c.shown.Load()
		switch {
		case by == nil || !c.Established():
			return
		case by.Subject == nil:
			t.add(by.Hash)
			if !expired {
				return
			}
		case now.Before(by.Subject.Expires):
			next = min(next, by.Subject.Expires.Sub(now))
			return
		}
		if why := v.TokenError(by, now); why != nil {
			closeForToken(c, why)
		}
	})
	t.note(ctx, now)
	t.setDue(now.Add(next))
	return next
}

func (t *Tokens) setDue(at time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.due = at
}

// expiring has a check come in time for a connection that has just been established.
func (t *Tokens) expiring(at time.Time) {
	t.mu.Lock()
	early := at.Before(t.due)
	if early {
		t.due = at
	}
	t.mu.Unlock()
	if early {
		t.notify()
	}
}

// closeForToken sends a connection away because of its token.
func closeForToken(c *Client, why error) {
	c.Close(transport.Graceful, protocol.StatusUnauthenticated,
		"the token that this connection came in with "+why.Error()+"; get a new one")
}

func (t *Tokens) note(ctx context.Context, now time.Time) {
	t.mu.Lock()
	seen := t.seen
	t.seen = nil
	t.mu.Unlock()
	if len(seen) == 0 {
		return
	}
	var ids []string
	list, _ := t.server.cfg.Cluster.State().Tokens()
	for i := range list {
		k := &list[i]
		if _, ok := seen[k.Hash]; ok && now.Sub(time.UnixMilli(int64(k.UsedAt))) > tokenUsePrecision {
			ids = append(ids, k.ID)
		}
	}
	if len(ids) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, tokenUseTimeout)
	defer cancel()
	if err := t.server.cfg.Cluster.Governor().TokensUsed(ctx, ids); err != nil {
		t.server.cfg.Log.Debug("use of tokens was not noted", "error", err)
	}
}
