package integration

import (
	"errors"
	"fmt"
	"testing"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server/servertest/form"
)

// TestManySessionEnds: however many sessions of a connection have ended, each is known to be gone,
// there and on any other connection.
func TestManySessionEnds(t *testing.T) {
	t.Parallel()
	s := start(t, nil)
	c, other := connect(t, s), connect(t, s)
	node := c.node()
	var ids []uint64
	for n := range uint64(100) {
		r := c.session(node, n+1)
		c.must(protocol.KindSessionStop, uint64(protocol.SessionBucket(r.Session)),
			&protocol.SessionStop{Session: r.Session, Epoch: 1}, nil)
		ids = append(ids, r.Session)
	}
	for _, id := range ids {
		for _, on := range []*raw{c, other} {
			if _, err := on.lock(node, id, "a", 0); !errors.Is(err, protocol.StatusSessionExpired) {
				t.Fatalf("session %d: %v", id, err)
			}
		}
	}
	living := c.session(node, 1000)
	if _, err := other.lock(node, living.Session, "a", 0); !errors.Is(err, protocol.StatusBadSession) {
		t.Fatalf("session %d: %v", living.Session, err)
	}
}

// TestUnboundSessions: a request on a session that is not on the connection is answered
// SESSION_EXPIRED if there is no such session, whether it ended or never was, and BAD_SESSION if it
// lives; whatever the request.
func TestUnboundSessions(t *testing.T) {
	t.Parallel()
	s := start(t, nil)
	c, other := connect(t, s), connect(t, s)
	node := c.node()
	ended, living := c.session(node, 1).Session, c.session(node, 2).Session
	c.must(protocol.KindSessionStop, uint64(protocol.SessionBucket(ended)), &protocol.SessionStop{Session: ended, Epoch: 1}, nil)
	ids := map[string]uint64{
		"ended": ended, "never given out": living + 1<<20,
		"the first of a bucket without sessions": protocol.MakeSessionID(0, uint16(protocol.SessionBucket(living)+1)%64, 1<<30),
		"of a tier that there is not":            protocol.MakeSessionID(7, 1, 5),
		"of a bucket that there is not":          protocol.MakeSessionID(0, 4000, 5),
		"living":                                 living,
	}
	name := []byte("svc/x")
	head := func(id uint64) protocol.Head { return protocol.Head{Session: id, Seq: 1, Low: 1} }
	for kind, of := range map[protocol.Kind]func(id uint64) protocol.Message{
		protocol.KindSessionStop: func(id uint64) protocol.Message { return &protocol.SessionStop{Session: id, Epoch: 1} },
		protocol.KindCreate:      func(id uint64) protocol.Message { return &protocol.Create{Head: head(id), Name: name, Limit: 1} },
		protocol.KindUpdate:      func(id uint64) protocol.Message { return &protocol.Update{Head: head(id), Name: name} },
		protocol.KindResize:      func(id uint64) protocol.Message { return &protocol.Resize{Head: head(id), Name: name, Limit: 1} },
		protocol.KindAlter:       func(id uint64) protocol.Message { return &protocol.Alter{Head: head(id), Name: name} },
		protocol.KindDelete:      func(id uint64) protocol.Message { return &protocol.Delete{Head: head(id), Name: name} },
		protocol.KindAcquire:     func(id uint64) protocol.Message { return &protocol.Acquire{Head: head(id), Name: name, Count: 1} },
		protocol.KindRelease:     func(id uint64) protocol.Message { return &protocol.Release{Head: head(id), Name: name} },
		protocol.KindDescribe: func(id uint64) protocol.Message {
			return &protocol.Describe{Node: node, Name: name, Session: id, Flags: protocol.WatchData, WatchID: 1}
		},
		protocol.KindProcessJoin:  func(id uint64) protocol.Message { return &protocol.ProcessJoin{Head: head(id), Name: []byte("p")} },
		protocol.KindProcessLeave: func(id uint64) protocol.Message { return &protocol.ProcessLeave{Head: head(id), Name: []byte("p")} },
		protocol.KindProcessConfirm: func(id uint64) protocol.Message {
			return &protocol.ProcessConfirm{Session: id, Name: []byte("p"), Epoch: 1, Step: protocol.StepPrepared}
		},
		protocol.KindProcessFail: func(id uint64) protocol.Message {
			return &protocol.ProcessFail{Session: id, Name: []byte("p"), Epoch: 1}
		},
		protocol.KindProcessComplete: func(id uint64) protocol.Message {
			return &protocol.ProcessComplete{Head: head(id), Name: []byte("p"), Epoch: 1}
		},
		protocol.KindProcessSync: func(id uint64) protocol.Message { return &protocol.ProcessSync{Session: id, Name: []byte("p")} },
		protocol.KindProcessRequest: func(id uint64) protocol.Message {
			return &protocol.ProcessRequest{Session: id, Name: []byte("p"), Epoch: 1, Number: 1, Low: 1, To: []uint64{1}}
		},
		protocol.KindProcessReply: func(id uint64) protocol.Message {
			return &protocol.ProcessReply{Session: id, Name: []byte("p"), Epoch: 1, To: 1, Number: 1}
		},
		protocol.KindTrackDelete: func(id uint64) protocol.Message { return &protocol.TrackDelete{Head: head(id), Name: name} },
		protocol.KindTrackPublish: func(id uint64) protocol.Message {
			return &protocol.TrackPublish{Head: head(id), Name: name, Version: 1}
		},
		protocol.KindTrackPoll: func(id uint64) protocol.Message {
			return &protocol.TrackPoll{Session: id, Name: name, ID: "i", Incarnation: 1}
		},
		protocol.KindTrackCreate: func(id uint64) protocol.Message {
			return &protocol.TrackCreate{Head: head(id), Name: name, Config: trackConfig()}
		},
		protocol.KindTrackAlter: func(id uint64) protocol.Message {
			return &protocol.TrackAlter{Head: head(id), Name: name, Revision: 1, Config: trackConfig()}
		},
		protocol.KindTrackRegister: func(id uint64) protocol.Message {
			return &protocol.TrackRegister{Head: head(id), Name: name, ID: "i", Location: "SAS", Role: protocol.InstanceFollower}
		},
		protocol.KindTrackUnregister: func(id uint64) protocol.Message {
			return &protocol.TrackUnregister{Head: head(id), Name: name, ID: "i", Incarnation: 1}
		},
		protocol.KindTrackReport: func(id uint64) protocol.Message {
			return &protocol.TrackReport{Session: id, Name: name, ID: "i", Incarnation: 1, Report: protocol.UpdateReport{Seq: 1}}
		},
		protocol.KindTrackSetRole: func(id uint64) protocol.Message {
			return &protocol.TrackSetRole{Head: head(id), Name: name, ID: "i", Incarnation: 1, Role: protocol.InstanceLeader}
		},
		protocol.KindTrackWithdraw: func(id uint64) protocol.Message {
			return &protocol.TrackWithdraw{Head: head(id), Name: name, Version: 1}
		},
		protocol.KindTrackAdmin: func(id uint64) protocol.Message {
			return &protocol.TrackAdmin{Head: head(id), Name: name, Verb: protocol.TrackPause}
		},
		protocol.KindTrackGateReport: func(id uint64) protocol.Message {
			return &protocol.TrackGateReport{Head: head(id), Name: name, Location: "SAS", Version: 1, Gate: "g", Attempt: 1,
				Outcome: protocol.GateFailure}
		},
		protocol.KindTrackAdvance: func(id uint64) protocol.Message {
			return &protocol.TrackAdvance{Head: head(id), Name: name, Version: 1}
		},
		protocol.KindLimitCreate: func(id uint64) protocol.Message {
			return &protocol.LimitCreate{Head: head(id), Path: name, Config: protocol.LimitConfig{Rate: 1000}}
		},
		protocol.KindLimitAlter: func(id uint64) protocol.Message {
			return &protocol.LimitAlter{Head: head(id), Path: name, Config: protocol.LimitConfig{Rate: 1000}}
		},
		protocol.KindLimitDelete:  func(id uint64) protocol.Message { return &protocol.LimitDelete{Head: head(id), Path: name} },
		protocol.KindLimitJoin:    func(id uint64) protocol.Message { return &protocol.LimitJoin{Head: head(id), Path: name} },
		protocol.KindLimitLeave:   func(id uint64) protocol.Message { return &protocol.LimitLeave{Head: head(id), Path: name} },
		protocol.KindLimitRefresh: func(id uint64) protocol.Message { return &protocol.LimitRefresh{Session: id, Path: name, Seq: 1} },
		protocol.KindLimitAcquire: func(id uint64) protocol.Message {
			return &protocol.LimitAcquire{Session: id, Path: name, Seq: 1, Amount: 1000, Leaves: []protocol.LimitNeed{{Path: name}}}
		},
	} {
		for what, id := range ids {
			want := protocol.StatusSessionExpired
			if what == "living" {
				want = protocol.StatusBadSession
			}
			if err := other.call(kind, c.bucket(node, string(name)), of(id), nil); !errors.Is(err, want) {
				t.Errorf("%v on a session that is %s: %v, want %v", kind, what, err, want)
			}
		}
	}
	// Its home is asked by these.
	for what, id := range ids {
		if what == "living" {
			continue
		}
		home := uint64(protocol.SessionBucket(id))
		for kind, m := range map[protocol.Kind]protocol.Message{
			protocol.KindSessionAttach:   &protocol.SessionAttach{Session: id, Node: node, Epoch: 2, Key: id16(2), Timeout: 1000, Nonce: 1},
			protocol.KindSessionKill:     &protocol.SessionKill{Session: id, Node: node, Reason: "test"},
			protocol.KindSessionDescribe: &protocol.SessionDescribe{Session: id, Node: node},
		} {
			if err := other.call(kind, home, m, nil); !errors.Is(err, protocol.StatusSessionExpired) {
				t.Errorf("%v of a session that is %s: %v", kind, what, err)
			}
		}
	}
}

// TestResultsAfterTheEnd: each accepted acquire of a session that ends gets its result, once,
// wherever its semaphore lives.
func TestResultsAfterTheEnd(t *testing.T) {
	t.Parallel()
	s := start(t, nil)
	holder, c, operator := connect(t, s), connect(t, s), connect(t, s)
	const names = 12
	// Holder and waiter have their home on one shard, which ends both at once when their node is
	// dropped.
	next, homes := uint64(0), s.shardIDs()[0]
	session := func(c *raw, node uint64) uint64 {
		for next++; s.shardAt(0, c.homeBucket(id16(next))).ID() != homes; next++ {
		}
		return c.session(node, next).Session
	}
	for n, how := range []string{"stopped", "killed", "its node is dropped"} {
		var made protocol.NodeInfo
		operator.must(protocol.KindNodeCreate, 0, &protocol.NodeCreate{Path: fmt.Sprint("/node-", n)}, &made)
		node := made.ID
		holds := session(holder, node)
		for i := range names {
			if r, err := holder.lock(node, holds, fmt.Sprint("n", i), 0); err != nil || r.State != protocol.Acquired {
				t.Fatal(r, err)
			}
		}
		end := func(id uint64) {
			home := uint64(protocol.SessionBucket(id))
			switch how {
			case "stopped":
				c.must(protocol.KindSessionStop, home, &protocol.SessionStop{Session: id, Epoch: 1}, nil)
			case "killed":
				operator.must(protocol.KindSessionKill, home, &protocol.SessionKill{Session: id, Node: node, Reason: "test"}, nil)
			default:
				operator.must(protocol.KindNodeDelete, 0, &protocol.NodeDelete{Path: made.Path, Force: true, Reason: "test"}, &protocol.Empty{})
			}
		}
		id := session(c, node)
		waiting := map[uint64]bool{}
		for i := range names {
			if r, err := c.lock(node, id, fmt.Sprint("n", i), protocol.Forever); err != nil ||
				r.State != protocol.Queued {
				t.Fatal(r, err)
			}
			waiting[c.seq] = true
		}
		end(id)
		for len(waiting) > 0 {
			var m protocol.AcquireResult
			c.event(protocol.KindAcquireResult, &m)
			if m.Session != id || m.Status != protocol.StatusSessionExpired || !waiting[m.Seq] {
				t.Fatalf("%s: result %+v, with %v waiting", how, m, waiting)
			}
			delete(waiting, m.Seq)
		}
		c.event(protocol.KindSessionEnded, nil)
	}
}

// TestResultsFromOtherInstances is the same in a cluster: semaphores whose shard is on another
// instance than the session's home send their results too, to the connection that waits there.
func TestResultsFromOtherInstances(t *testing.T) {
	form.SkipUntil(t, form.Full, "three instances; TestResultsAfterTheEnd has one")
	t.Parallel()
	k := twoHalves(t)
	servers := []*instance{k.server("a"), k.server("b")}
	// A client has a connection to each instance, and asks the one that has the bucket.
	connectAll := func() []*raw { return []*raw{connect(t, servers[0]), connect(t, servers[1])} }
	owner := func(bucket uint64) int {
		shard, _ := servers[0].Meta.State().Route(0, uint32(bucket))
		if servers[0].Serving.Shards.Get(shard) != nil {
			return 0
		}
		return 1
	}
	holder, client := connectAll(), connectAll()
	operator := client[0]
	// Holder and waiter have their home on one shard, which ends both at once when their node is
	// dropped.
	var homes [2]uint64
	next := uint64(0)
	session := func(conns []*raw, node uint64, home int) uint64 {
		for found := false; !found; {
			next++
			bucket := conns[0].homeBucket(id16(next))
			shard, _ := servers[0].Meta.State().Route(0, uint32(bucket))
			if homes[home] == 0 && owner(bucket) == home {
				homes[home] = shard
			}
			found = shard == homes[home]
		}
		r := conns[home].session(node, next)
		conns[1-home].must(protocol.KindPresentTicket, 0, &protocol.PresentTicket{Ticket: r.Ticket, Description: "raw"}, nil)
		return r.Session
	}
	for home := range servers {
		for n, how := range []string{"stopped", "killed", "its node is dropped"} {
			var made protocol.NodeInfo
			operator.must(protocol.KindNodeCreate, 0, &protocol.NodeCreate{Path: fmt.Sprintf("/node-%d-%d", home, n)}, &made)
			node := made.ID
			holds, waits := session(holder, node, home), session(client, node, home)
			waiting := []map[uint64]bool{{}, {}}
			for i := 0; len(waiting[0]) < 6 || len(waiting[1]) < 6; i++ {
				name := fmt.Sprint("n", i)
				at := owner(client[0].bucket(node, name))
				if r, err := holder[at].lock(node, holds, name, 0); err != nil || r.State != protocol.Acquired {
					t.Fatal(r, err)
				}
				client[at].seq = client[1-at].seq // numbers are the session's
				if r, err := client[at].lock(node, waits, name, protocol.Forever); err != nil ||
					r.State != protocol.Queued {
					t.Fatal(r, err)
				}
				client[1-at].seq = client[at].seq
				waiting[at][client[at].seq] = true
			}
			bucket := uint64(protocol.SessionBucket(waits))
			switch how {
			case "stopped":
				client[home].must(protocol.KindSessionStop, bucket, &protocol.SessionStop{Session: waits, Epoch: 1}, nil)
			case "killed":
				client[home].must(protocol.KindSessionKill, bucket,
					&protocol.SessionKill{Session: waits, Node: node, Reason: "test"}, nil)
			default:
				operator.must(protocol.KindNodeDelete, 0, &protocol.NodeDelete{Path: made.Path, Force: true, Reason: "test"}, &protocol.Empty{})
			}
			for at, c := range client {
				for len(waiting[at]) > 0 {
					var m protocol.AcquireResult
					c.event(protocol.KindAcquireResult, &m)
					if m.Session != waits || m.Status != protocol.StatusSessionExpired || !waiting[at][m.Seq] {
						t.Fatalf("%s, home on %d: result %+v from %d, with %v waiting", how, home, m, at, waiting[at])
					}
					delete(waiting[at], m.Seq)
				}
			}
		}
	}
}

// TestStopTakesTicketBack: a client whose session has ended takes it back where it presented its
// ticket. Otherwise the instance would keep the session, and what it watches, while the connection
// lasts.
func TestStopTakesTicketBack(t *testing.T) {
	t.Parallel()
	k := twoHalves(t)
	servers := []*instance{k.server("a"), k.server("b")}
	conns := []*raw{connect(t, servers[0]), connect(t, servers[1])}
	shards := [2]uint64{}
	at := func(bucket uint64) int {
		shard, _ := servers[0].Meta.State().Route(0, uint32(bucket))
		i := 1
		if servers[0].Serving.Shards.Get(shard) != nil {
			i = 0
		}
		shards[i] = shard
		return i
	}
	node := conns[0].node()
	sessionAt := func(home int) protocol.SessionReply {
		n := uint64(10 * home)
		for n++; at(conns[0].homeBucket(id16(n))) != home; n++ {
		}
		return conns[home].session(node, n)
	}
	name := "n"
	for at(conns[0].bucket(node, name)) != 1 {
		name += "n"
	}
	s, holder, remote := sessionAt(0), sessionAt(1), conns[1]
	if _, err := remote.lock(node, holder.Session, name, 0); err != nil {
		t.Fatal(err)
	}
	at(remote.bucket(node, name))
	remote.must(protocol.KindPresentTicket, 0, &protocol.PresentTicket{Ticket: s.Ticket, Description: "raw"}, nil)
	remote.must(protocol.KindDescribe, remote.bucket(node, name), &protocol.Describe{Session: s.Session, Node: node,
		Name: []byte(name), Flags: protocol.WatchOwners, WatchID: 7}, nil)
	watched := func() int { return servers[1].Serving.Shards.Get(shards[1]).Hubs().Semaphores.Stats().OneShots }
	if n := watched(); n != 1 {
		t.Fatalf("%d watches are armed", n)
	}
	bucket, stop := uint64(protocol.SessionBucket(s.Session)), &protocol.SessionStop{Session: s.Session, Epoch: 1}
	conns[0].must(protocol.KindSessionStop, bucket, stop, nil)
	remote.fails(protocol.StatusWrongShard, protocol.KindSessionStop, bucket, stop)
	if n := watched(); n != 0 {
		t.Errorf("%d watches of an ended session are armed", n)
	}
	remote.fails(protocol.StatusSessionExpired, protocol.KindSessionStop, bucket, stop)
}
