package core

import (
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/signalbox-dev/signalbox/protocol"
)

// attempt takes the connection that is being made to an instance, or to the endpoint.
func (s *script) attempt(t *testing.T, instance string) *Conn {
	for _, address := range []string{"i" + instance, "endpoint"} {
		for i, c := range s.dialed {
			if slices.Contains(c.Addresses, address) {
				s.dialed = slices.Delete(s.dialed, i, i+1)
				return c
			}
		}
	}
	t.Fatalf("no connection to %s is being made", instance)
	return nil
}

// server is something that a server sends.
func (s *script) server(t *testing.T, d *datadriven.TestData, from string, c *Conn, w words) {
	reply := func(m protocol.Message, status protocol.Status) {
		to, ok := s.ids[from+"/"+w.list[1]]
		if !ok {
			d.Fatalf(t, "no request %s was sent to %s", w.list[1], from)
		}
		s.receive(t, c, protocol.AppendFrame(nil, to.kind|protocol.KindReply, to.id, uint64(status), m))
	}
	event := func(kind protocol.Kind, m protocol.Message) {
		s.receive(t, c, protocol.AppendFrame(nil, kind, 0, 1, m))
	}
	token := w.number(t, "token", 0)
	states := map[string]protocol.AcquireState{
		"acquired": protocol.Acquired, "queued": protocol.Queued, "not-acquired": protocol.NotAcquired,
	}
	switch what := w.list[0]; what {
	case "map":
		m := &protocol.MapReply{Version: w.number(t, "version", 1), Tiers: []protocol.MapTier{{Buckets: 8}}}
		if w.list[1] == "none" { // the cluster is being made
			m.Tiers = nil
		}
		for _, f := range w.list[1:] {
			if m.Tiers == nil {
				break
			}
			shard, instances, _ := strings.Cut(f, "@")
			id, _ := strconv.ParseUint(shard, 10, 64)
			var replicas []uint64
			for instance := range strings.SplitSeq(instances, ",") {
				at, _ := strconv.ParseUint(instance, 10, 64)
				replicas = append(replicas, at)
				if !slices.ContainsFunc(m.Instances, func(i protocol.MapInstance) bool { return i.ID == at }) {
					m.Instances = append(m.Instances, protocol.MapInstance{ID: at, Address: "i" + instance})
				}
			}
			m.Shards = append(m.Shards, protocol.MapShard{ID: id, Master: replicas[0], Replicas: replicas, Term: w.number(t, "term", 1)})
			m.Tiers[0].Runs = append(m.Tiers[0].Runs, protocol.MapRun{Count: 8 / uint32(len(w.list)-1), Shard: id})
		}
		w.list[1] = "map"
		reply(m, protocol.StatusOK)
	case "described":
		w.list = append(w.list, "describe")
		reply(&protocol.NodeInfo{ID: 7, Config: protocol.NodeConfig{GracePeriod: w.millis(t, "grace", 10_000)}}, protocol.StatusOK)
	case "ok":
		reply(&protocol.Empty{}, protocol.StatusOK)
	case "stopped":
		w.list = append(w.list, "stop")
		reply(&protocol.Empty{}, protocol.StatusOK)
	case "started", "attached":
		m := &protocol.SessionReply{
			Session: w.number(t, "session", 1), Epoch: w.number(t, "epoch", 1), Shard: w.number(t, "shard", 1), Timeout: w.millis(t, "timeout", 10_000),
			Grace: w.millis(t, "grace", 10_000), Node: 7, Ticket: []byte("ticket"),
		}
		w.list = append(w.list, map[string]string{"started": "start", "attached": s.whose(m.Session) + "attach"}[what])
		reply(m, protocol.StatusOK)
	case "acquired", "queued", "not-acquired":
		reply(&protocol.AcquireReply{State: states[what], OrderID: token, Grant: w.grant(t)}, protocol.StatusOK)
	case "released":
		reply(&protocol.ReleaseReply{Released: true}, protocol.StatusOK)
	case "result":
		n, err := strconv.ParseUint(w.list[1], 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		m := &protocol.AcquireResult{Session: 1, Seq: n, State: states[w.list[2]], OrderID: token, Grant: w.grant(t)}
		if m.State == 0 {
			m.Status, m.Message = statusNamed(t, w.list[2]), "said so"
		}
		event(protocol.KindAcquireResult, m)
	case "lease-lost":
		causes := map[string]protocol.HoldEnd{"max-hold": protocol.HoldMaxHold, "preempted": protocol.HoldPreempted}
		event(protocol.KindLeaseLost, &protocol.LeaseLost{Session: 1, Name: []byte(w.list[1]), OrderID: token, Message: "taken by force",
			Cause: causes[w.options["cause"]]})
	case "lease-preempted":
		_, over := w.options["over"]
		event(protocol.KindLeasePreempted, &protocol.LeasePreempted{Session: 1, Name: []byte(w.list[1]), OrderID: token,
			Preemption: w.number(t, "preemption", 0), Over: over, Now: w.number(t, "now", 0), Until: w.number(t, "until", 0), By: w.number(t, "by", 0)})
	case "BOUND":
		reply(&protocol.Failure{Refusal: protocol.RefusalBound, Message: "said so"}, protocol.StatusPreconditionFailed)
	case "session-ended":
		m := &protocol.SessionEnded{Session: 1, Reason: protocol.EndExpired}
		if w.options["reason"] == "stopped" {
			m.Reason = protocol.EndStopped
		}
		event(protocol.KindSessionEnded, m)
	case "detached":
		event(protocol.KindDetached, &protocol.Detached{Session: 1, Epoch: w.number(t, "epoch", 1)})
	case "taken-over":
		event(protocol.KindTakenOver, &protocol.TakenOver{Session: 1, Epoch: w.number(t, "epoch", 1)})
	case "pong":
		n := c.keepAlive.lastPing
		if at, ok := w.options["ping"]; ok {
			sent, err := time.ParseDuration(at)
			if err != nil {
				t.Fatal(err)
			}
			n = uint64(epoch+sent-c.keepAlive.began) + 1
		}
		s.receive(t, c, protocol.AppendFrame(nil, protocol.KindPong, n, w.number(t, "shard", 0), nil))
	case "leader":
		event(protocol.KindMapChanged, &protocol.MapChanged{
			Version: w.number(t, "version", 1), Shard: w.number(t, "shard", 1), Master: w.number(t, "leader", 0),
			Term: w.number(t, "term", 0),
		})
	case "newer":
		event(protocol.KindMapChanged, &protocol.MapChanged{Version: w.number(t, "version", 0)})
	case "event":
		s.receive(t, c, protocol.AppendFrame(nil, protocol.Kind(0x7f), 0, 0, nil))
	case "broken":
		to := s.ids[from+"/"+w.list[1]]
		s.receive(t, c, protocol.AppendFrameRaw(nil, to.kind|protocol.KindReply, to.id, 0, []byte{0x91, 0xc3}))
	case "goodbye":
		event(protocol.KindGoodbye, &protocol.Goodbye{Status: protocol.StatusUnavailable, Message: "server stops"})
	case "lost":
		delete(s.conns, from)
		s.e.Lost(s.now, c, errors.New("reset by peer"))
	default:
		if s.watchServer(t, from, c, w) {
			break
		}
		reply(&protocol.Failure{
			Message: "said so", Shard: w.number(t, "shard", 0), Master: w.number(t, "leader", 0), Term: w.number(t, "term", 0),
			MapVersion: w.number(t, "version", 0),
		}, statusNamed(t, what))
	}
}

func statusNamed(t *testing.T, name string) protocol.Status {
	for s := range protocol.Status(64) {
		if s.String() == name {
			return s
		}
	}
	t.Fatalf("no status %s", name)
	return 0
}

func (s *script) receive(t *testing.T, c *Conn, b []byte) {
	frame, _, err := protocol.SplitFrame(b, protocol.MaxFrameLen)
	if err != nil {
		t.Fatal(err)
	}
	h, err := protocol.ParseFrame(frame)
	if err != nil {
		t.Fatal(err)
	}
	s.e.Received(s.now, c, []protocol.Header{h})
	for i := range frame { // it is the reader's again, which reads into it
		frame[i] = 0xff
	}
}
