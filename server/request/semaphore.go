package request

import (
	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server/audit"
	"github.com/signalbox-dev/signalbox/server/auth"
)

// semaphoreRequests are the requests that change semaphores. They are decoded and checked here, so
// that what enters the log is worth its sync.
func semaphoreRequests() map[protocol.Kind]requestKind {
	return map[protocol.Kind]requestKind{
		protocol.KindCreate: {
			body:  func(b *requestBuffers) (request, *uint64) { return &b.create, &b.create.Session },
			data:  func(b *requestBuffers) (string, []byte) { return "data", b.create.Data },
			names: ofSession, right: auth.RightUse, charge: chargeAsk, grows: true, routed: true, handle: submitTarget,
		},
		protocol.KindUpdate: {
			body:  func(b *requestBuffers) (request, *uint64) { return &b.update, &b.update.Session },
			data:  func(b *requestBuffers) (string, []byte) { return "data", b.update.Data },
			names: ofSession, right: auth.RightUse, charge: chargeAsk, grows: true, routed: true, handle: submitTarget,
		},
		protocol.KindResize: {
			body:  func(b *requestBuffers) (request, *uint64) { return &b.resize, &b.resize.Session },
			names: ofSession, right: auth.RightAdmin, charge: chargeAsk, routed: true, handle: resize,
		},
		protocol.KindDelete: {
			body:  func(b *requestBuffers) (request, *uint64) { return &b.delete, &b.delete.Session },
			names: ofSession, right: auth.RightAdmin, charge: chargeAsk, routed: true, handle: deleteSemaphore,
		},
		protocol.KindAcquire: {
			body:  func(b *requestBuffers) (request, *uint64) { return &b.acquire, &b.acquire.Session },
			data:  func(b *requestBuffers) (string, []byte) { return "data", b.acquire.Data },
			names: ofSession, right: auth.RightUse, charge: chargeAsk, grows: true, routed: true, handle: acquire,
		},
		protocol.KindRelease: {
			body:  func(b *requestBuffers) (request, *uint64) { return &b.release, &b.release.Session },
			names: ofSession, right: auth.RightUse, charge: chargeAlways, routed: true, handle: submitTarget,
		},
		protocol.KindForceRelease: {
			body:  func(b *requestBuffers) (request, *uint64) { return &b.force, &b.force.Node },
			names: ofNode, right: auth.RightAdmin, handle: forceRelease,
		},
	}
}

// acquire adds the session's description for a shard that may not know it.
func acquire(c *Client, p *cycle, h protocol.Header, t target) {
	cmd := t.command()
	cmd.Client = t.binding.DescriptionFor(t.shard, p.now)
	if c.submitToShard(t.shard, p, h, cmd) && cmd.Client != "" {
		t.binding.MarkDescribed(t.shard, p.now)
	}
}

func resize(c *Client, p *cycle, h protocol.Header, t target) {
	if m := &p.requests.resize; m.Reason != "" {
		auditRequest(c, "ask_resize", "another limit of a semaphore is asked for", t.node,
			audit.Field{Key: "semaphore", Value: string(m.Name)},
			audit.Field{Key: "limit", Value: m.Limit}, audit.Field{Key: "reason", Value: m.Reason})
	}
	submitTarget(c, p, h, t)
}

func deleteSemaphore(c *Client, p *cycle, h protocol.Header, t target) {
	if m := &p.requests.delete; m.Force {
		auditRequest(c, "ask_force_delete", "the end of a semaphore and of its leases is asked for", t.node,
			audit.Field{Key: "semaphore", Value: string(m.Name)},
			audit.Field{Key: "session", Value: m.Session})
	}
	submitTarget(c, p, h, t)
}
