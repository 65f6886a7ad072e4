package delivery

import (
	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard"
)

// LimitStreams are the streams over rate limits of one shard, on this instance. They exist while
// the instance leads the shard, because its leases are the leader's. A stream is of one session,
// and has it refresh.
type LimitStreams struct{ ObjectStreams[LimitFilter] }

// LimitFilter distinguishes streams of one rate limit.
type LimitFilter struct{ Session uint64 }

func newLimitStreams(h *Hubs) *LimitStreams {
	t := &LimitStreams{newObjectStreams[LimitFilter](h,
		objectKind{what: "rate limit", use: "use", bucket: protocol.Bucket, leaderOnly: true})}
	t.sendState = t.begin
	return t
}

// changed sends nothing: a leader's leases are not in the log. Notify reports them.
func (l *LimitStreams) changed(Viewer, uint64, *shard.Events) {}

// begin sends the beginning of a stream: its session is to refresh. mu is held.
func (l *LimitStreams) begin(s *objectStream[LimitFilter], m *shard.Machine) {
	v, err := m.RateLimits().View(s.node, []byte(s.name), 0)
	if err != nil {
		l.cutStream(s, protocol.StatusOf(err), err.Error())
		return
	}
	s.live = true
	changed := protocol.LimitChanged{Revision: v.Tree.Revision()}
	l.send.Send(s.conn, protocol.AppendFrame(nil, protocol.KindLimitChanged, s.id, l.shard, &changed), false)
}

// Notify has a session refresh its leases of a rate limit.
func (l *LimitStreams) Notify(node uint64, name string, session, revision uint64) {
	if l.count.Load() == 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	changed := protocol.LimitChanged{Revision: revision}
	var body []byte
	for _, s := range l.byName[NameKey(node, []byte(name))][LimitFilter{session}] {
		if body == nil {
			body = protocol.AppendBody(nil, &changed)
		}
		l.sendChange(s, protocol.KindLimitChanged, body)
	}
}
