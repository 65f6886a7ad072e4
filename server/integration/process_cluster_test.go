package integration

import (
	"errors"
	"testing"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server/servertest/form"
)

// TestProcessCutOffLeader: a leader that is cut off, and may not know it yet, tells nobody that he
// is no member: he may have joined at the next one.
func TestProcessCutOffLeader(t *testing.T) {
	form.SkipUntil(t, form.Full, "a leader is cut off; TestProcessRounds has one instance")
	t.Parallel()
	k := newClusterKit(t, 3)
	k.startAll("a", "b", "c")
	k.awaitOn("a", "three instances that work", balanced(3, 3, 3))
	leads := func(s *instance, bucket uint64) bool {
		d := s.shardAt(0, bucket)
		return d != nil && d.Leading()
	}
	var p *memberClient
	var name string
	k.eventually("an instance that leads the shards of a process and of a session", func() bool {
		for _, name = range k.names() {
			s := k.server(name)
			x := &memberClient{raw: connect(t, s), name: "queue"}
			x.node = x.raw.node()
			for n := uint64(1); n < 1000 && leads(s, x.bucket()); n++ {
				if !leads(s, x.homeBucket(id16(n))) {
					continue
				}
				var r protocol.SessionReply
				m := &protocol.SessionStart{Node: x.node, CreateID: id16(n), Key: id16(n), Timeout: 60_000, Nonce: n}
				if x.call(protocol.KindSessionStart, x.homeBucket(m.CreateID), m, &r) != nil {
					break // it leads no more
				}
				x.session, p = r.Session, x
				return errors.Is(x.sync(0), protocol.StatusNotFound)
			}
		}
		return false
	})
	for _, other := range k.names() {
		if other != name {
			k.isolate(name, other)
		}
	}
	id := p.send(protocol.KindProcessSync, p.bucket(), &protocol.ProcessSync{Session: p.session, Name: []byte("queue")})
	for {
		h, err := p.next()
		if err != nil {
			break // its sessions were taken from it, and the connection is closed
		}
		if h.Kind == protocol.KindProcessSync|protocol.KindReply && h.ID == id {
			switch st := protocol.Status(h.Arg); st {
			case protocol.StatusUnavailable, protocol.StatusWrongShard:
			case protocol.StatusBadSession: // its sessions were taken from it before it met the request
			default:
				t.Errorf("the leader that is cut off answers %v", st)
			}
			break
		}
	}
	k.net.HealAll()
}
