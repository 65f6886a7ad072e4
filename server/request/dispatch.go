package request

import (
	"errors"
	"fmt"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard"
	"github.com/signalbox-dev/signalbox/shard/meta"
	"github.com/signalbox-dev/signalbox/shard/replica"
)

// request is a message that the read cycle decodes and checks before anything else happens with it.
type request = protocol.Message

// decode reads and checks a request. It returns false if the request was answered.
func (p *cycle) decode(c *Client, h protocol.Header, m request) bool {
	err := protocol.DecodeBody(m, h.Body)
	if err == nil {
		err = protocol.Validate(m)
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
	if shard.NeedsFormat(shard.CommandKind(h.Kind), h.Body) > c.server.Routes().Format() {
		p.out.FailError(c, h.Kind, h.ID, meta.NeedsShardFormat(shard.NeedsFormat(shard.CommandKind(h.Kind), h.Body)))
		return
	}
	c.serve(p, h, k)
}

// asError is an error as a reply carries it.
func asError(err error) *protocol.Error {
	if e, ok := errors.AsType[*protocol.Error](err); ok {
		return e
	}
	return &protocol.Error{Status: protocol.StatusOf(err), Message: err.Error()}
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

// submit hands a command to the shard that owns the bucket. Its reply comes from the log.
func (c *Client) submit(p *cycle, h protocol.Header, tier uint8, cmd shard.Command) {
	if d := c.shardFor(p, h, tier); d != nil {
		c.submitToShard(d, p, h, cmd)
	}
}

// shardFor is the shard that owns the bucket of a request; nil: the request was answered.
func (c *Client) shardFor(p *cycle, h protocol.Header, tier uint8) Shard {
	d := c.server.Routes().Shard(tier, h.Arg)
	if d == nil {
		p.out.rejectElsewhere(c, h, tier)
	}
	return d
}

// submitToShard is submit for a shard that is known. It returns false if the shard did not take the
// command, and the request was answered.
func (c *Client) submitToShard(d Shard, p *cycle, h protocol.Header, cmd shard.Command) bool {
	if c.rejectMoving(d, p, h) {
		return false
	}
	cmd.Kind = shard.CommandKind(h.Kind)
	cmd.Body = h.Body
	st := p.commands.Submit(d.Replica(), cmd, replica.Origin{Conn: c.ID(), Request: h.ID, Kind: h.Kind,
		Tag: uint64(p.now)})
	if st != protocol.StatusOK {
		c.RejectSubmit(p.out, d, h.Kind, h.ID, st)
	}
	return st == protocol.StatusOK
}

// rejectMoving rejects a request for a bucket that moves and that the shard does not serve now. The
// log would refuse it too, but only after a commit. When the bucket is served, clients that wait
// for that word go on at once, and those whose request is in the log lose the time of two commits.
func (c *Client) rejectMoving(d Shard, p *cycle, h protocol.Header) bool {
	if !c.server.Routes().inMove(d.ID(), h.Arg) || !d.Leading() {
		return false
	}
	active := false
	d.Replica().View(func(m *shard.Machine) { _, active = m.Bucket(uint32(h.Arg)) })
	if !active {
		p.out.RejectByShard(c, d, h.Kind, h.ID, protocol.StatusWrongShard, 0,
			"the bucket moves between shards and is served in a moment; send the request again when this instance says so")
	}
	return !active
}

// RejectSubmit answers a request that a shard did not take.
func (c *Client) RejectSubmit(o *Outbox, d Shard, kind protocol.Kind, id uint64, st protocol.Status) {
	if st == protocol.StatusUnavailable && d.LedElsewhere() {
		o.RejectByShard(c, d, kind, id, protocol.StatusWrongShard, 0, submitFailed(d, protocol.StatusWrongShard))
		return
	}
	o.Fail(c, kind, id, st, submitFailed(d, st))
}
