package shardhost

import (
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server/audit"
	"github.com/signalbox-dev/signalbox/server/delivery"
	"github.com/signalbox-dev/signalbox/server/request"
	"github.com/signalbox-dev/signalbox/server/transport"
	"github.com/signalbox-dev/signalbox/shard"
	"github.com/signalbox-dev/signalbox/shard/leader"
	"github.com/signalbox-dev/signalbox/shard/replica"
)

const (
	slowPrepareAfter    = 10 * time.Second // of a member, until it is logged
	slowCheckPeriod     = 5 * time.Second  // between two looks for slow members
	maxScannedProcesses = 10_000           // processes in one look at them
)

// memberSink sends to members of processes what the leader of a shard has for them.
type memberSink struct {
	host   *Shard
	counts processCounts

	// Of the goroutine that calls it.
	outbox  *request.Outbox
	round   roundWriter
	message protocol.ProcessMessage
	slow    slowMembers
}

var _ replica.MemberSink = (*memberSink)(nil)

func newMemberSink(d *Shard) *memberSink {
	return &memberSink{host: d, outbox: d.serving.Requests.NewOutbox(),
		slow: slowMembers{known: make(map[string]uint64)}}
}

// Contain implements replica.MemberSink.
func (m *memberSink) Contain(id uint64) {
	if v := recover(); v != nil {
		m.host.serving.Requests.Panicked("process", v)
		if c := m.host.serving.Requests.Client(id); c != nil {
			c.Close(transport.Immediate, protocol.StatusInternal, "the server met a defect; reconnect and send again")
		}
	}
}

// MemberReply implements replica.MemberSink.
func (m *memberSink) MemberReply(og replica.Origin, err error) {
	c := m.host.serving.Requests.Client(og.Conn)
	switch {
	case c == nil:
		m.host.serving.Metrics.RepliesDropped.Inc()
	case err == nil:
		m.outbox.Reply(c, og.Kind, og.Request, nil)
	default:
		m.outbox.FailError(c, og.Kind, og.Request, err)
	}
}

// FlushMembers implements replica.MemberSink.
func (m *memberSink) FlushMembers() { m.outbox.Flush() }

// DeliverToMembers implements replica.MemberSink.
func (m *memberSink) DeliverToMembers(out *leader.ProcessOut) {
	for i := range out.Rounds {
		m.notify(&m.round, &out.Rounds[i])
	}
	for i := range out.Messages {
		machine := &out.Messages[i]
		c := m.host.serving.Bindings.Conn(machine.To)
		if c == nil {
			continue
		}
		machine.Message(&m.message)
		if !m.host.Send(c.ID(), protocol.AppendFrame(nil, protocol.KindProcessMessage, 0, m.host.ID(), &m.message), true) {
			m.counts.undelivered.Add(1)
		}
	}
	m.message.Payload = nil
}

// roundWriter writes rounds to members, for one goroutine.
type roundWriter struct {
	protocol.ProcessRound
	list    []protocol.ProcessMember // of the last round that was written
	encoded []byte                   // the same
}

// AppendBody writes the round with the list that is encoded.
func (w *roundWriter) AppendBody(b []byte) []byte { return w.AppendShared(b, w.encoded) }

// take makes an event the round that AppendBody writes. A list is never changed in place, and all
// that are notified of a round share it.
func (w *roundWriter) take(e *shard.Event) {
	shard.ProcessRound(e, &w.ProcessRound)
	list := e.Process.Members
	if w.encoded != nil && len(list) == len(w.list) && (len(list) == 0 || &list[0] == &w.list[0]) {
		return
	}
	w.list, w.encoded = list, protocol.AppendProcessMembers(w.encoded[:0], list)
}

// notify writes an EventProcess to its member's connection, if there is one here. A list of
// members may be long, and comes again some seconds later, so a connection that has much to read
// already does not get it. Everything else is short.
func (m *memberSink) notify(w *roundWriter, e *shard.Event) {
	d := m.host
	c := d.serving.Bindings.Conn(e.Session)
	if c == nil {
		return
	}
	w.take(e)
	if len(w.list) == 0 {
		c.Append(protocol.KindProcessRound, 0, d.ID(), w)
	} else if !d.Send(c.ID(), protocol.AppendFrame(nil, protocol.KindProcessRound, 0, d.ID(), w), true) {
		m.counts.undelivered.Add(1)
	}
	w.Result = nil
}

// slowMembers remembers which rounds were logged.
type slowMembers struct {
	at    time.Duration
	known map[string]uint64 // epoch by node and name
}

// MembersTicked implements replica.MemberSink. It logs members that take long to prepare, once a
// round: the round waits for them.
func (m *memberSink) MembersTicked(rep *replica.Shard) {
	d := m.host
	now := d.serving.Clock.Now()
	if now-m.slow.at < slowCheckPeriod {
		return
	}
	m.slow.at = now
	known := make(map[string]uint64)
	logTime := rep.LogTime()
	rep.View(func(machine *shard.Machine) {
		left := maxScannedProcesses
		machine.Processes().From(0, nil, func(v shard.ProcessView) bool {
			left--
			if v.Phase() != protocol.PhasePreparing {
				return left > 0
			}
			started, sessions := v.Preparing(nil)
			if logTime < started+uint64(slowPrepareAfter/time.Millisecond) {
				return left > 0
			}
			key := delivery.NameKey(v.Node(), v.Name())
			if m.slow.known[key] != v.Epoch() {
				path, _ := d.serving.Requests.Routes().NodePath(v.Node())
				d.serving.Log.Warn("members do not prepare, the round waits for them", "shard", d.ID(), "node", path,
					audit.Name("process", v.Name()), "epoch", v.Epoch(),
					"members", len(sessions), "session", sessions[0])
			}
			known[key] = v.Epoch()
			return left > 0
		})
	})
	m.slow.known = known
}
