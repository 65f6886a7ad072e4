package request

import (
	"errors"
	"fmt"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard/replica"
)

// request is a message the listener decodes and checks before anything else happens with it.
type request interface {
	protocol.Message
	protocol.Validator
}

// decode reads and checks a request. False: it was answered.
func (p *cycle) decode(c *Client, h protocol.Header, m request) bool {
	err := m.DecodeBody(h.Body)
	if err == nil {
		err = m.Validate()
	}
	if err != nil {
		p.out.FailError(c, h.Kind, h.ID, err)
		return false
	}
	return true
}

// request serves one request of a connection that said hello. Exactly one reply goes out for each,
// now or later, except for pings.
func (c *Client) request(p *cycle, h protocol.Header) {
	if h.Kind == protocol.KindPing {
		ping(c, p, h)
		return
	}
	if n := c.unanswered.Add(1); int(n) > c.server.cfg.Limits.Window {
		p.out.Fail(c, h.Kind, h.ID, protocol.StatusOverloaded, c.server.windowFull)
		return
	}
	if c.server.draining.Load() {
		p.out.Fail(c, h.Kind, h.ID, protocol.StatusUnavailable,
			"server is stopping; ask another instance, or this one when it is back")
		return
	}
	k := &c.server.kinds[h.Kind]
	if k.handle == nil {
		p.out.Fail(c, h.Kind, h.ID, protocol.StatusUnsupported, "this message is not served here")
		return
	}
	if full := c.server.cfg.Limits.Memory(); full != nil && k.grows {
		c.server.cfg.Metrics.MemoryRefused.Inc()
		p.out.FailError(c, h.Kind, h.ID, full)
		return
	}
	c.serve(p, h, k)
}

// statusText takes an error apart for a reply.
func statusText(err error) (protocol.Status, string) {
	var e *protocol.Error
	if errors.As(err, &e) {
		return e.Status, e.Message
	}
	return protocol.StatusOf(err), err.Error()
}

// submitFailed is the sentence for a command that a shard did not take.
func submitFailed(d Shard, st protocol.Status) string {
	if st == protocol.StatusOverloaded {
		return fmt.Sprintf(
			"shard %d takes no more now: its open batch is at its limit of %d bytes, or the disk of its log is behind; retry later",
			d.ID(), replica.DefaultMaxOpenBytes)
	}
	return fmt.Sprintf("shard %d has no leader here now; fetch the map and retry", d.ID())
}
