package shard

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/signalbox-dev/signalbox/protocol"
)

// trackShard is a machine and its log.
type trackShard struct {
	m     *Machine
	index uint64
	term  uint64
	out   Events
}

func newTrackShard(t testing.TB, first, count uint32) *trackShard {
	s := &trackShard{m: New(1), term: 1}
	s.do(t, 1, Command{Kind: CmdTakeOver})
	c := scriptConfig()
	c.MaxSessions, c.MaxSemaphores, c.MaxBytes, c.MaxWaiters = 1<<40, 1<<40, 1<<60, 1<<40
	s.do(t, 1,
		Command{Kind: CmdBuckets, Body: AppendBuckets(nil, BucketsBody{Total: 64, First: first, Count: count})})
	s.do(t, 1, Command{Kind: CmdNodePut, Body: AppendNodePut(nil, NodePutBody{Node: 1, Revision: 1, Config: c})})
	return s
}

func (s *trackShard) do(t testing.TB, now uint64, c Command) Event {
	t.Helper()
	s.index++
	entry := AppendHeader(nil, Header{Format: 1, Epoch: s.term << 16, Seq: s.index, LogTime: now, Wall: now})
	s.out.Reset()
	s.m.Apply(s.index, AppendCommand(entry, c), &s.out)
	if err := s.m.Check(); err != nil {
		t.Fatal(err)
	}
	for _, e := range s.out.List {
		if e.Kind == EventReply {
			return e
		}
	}
	t.Fatal("no reply")
	return Event{}
}

// instanceSession is a session that has, or wants, an instance.
type instanceSession struct {
	create     [protocol.KeyLen]byte
	id, epoch  uint64
	seq        uint64
	registered uint64 // incarnation
}

// detachTest is a track and the sessions of its instances, which are at home in the track's shard
// or in another one.
type detachTest struct {
	t           testing.TB
	track, home *trackShard
	now         uint64
	members     []*instanceSession
	creates     uint64
}

func newDetachTest(t testing.TB, remote bool) *detachTest {
	x := &detachTest{t: t, now: 1_000}
	if remote {
		x.track, x.home = newTrackShard(t, 0, 32), newTrackShard(t, 32, 32)
	} else {
		x.track = newTrackShard(t, 0, 64)
		x.home = x.track
	}
	for range 3 {
		x.members = append(x.members, x.start())
	}
	if remote == (x.track.m.activeHomeBucket(x.members[0].id) != nil) {
		t.Fatal("the sessions are at home in the wrong shard")
	}
	p := x.members[2]
	e := x.send(p, CmdTrackCreate, &protocol.TrackCreate{Head: p.head(), Name: x.name(), Config: protocol.TrackConfig{
		Source: protocol.SourcePublished, Locations: []protocol.LocationConfig{{Name: "SAS"}},
	}})
	if e.Status != protocol.StatusOK {
		t.Fatalf("create: %v %s", e.Status, e.Text)
	}
	return x
}

// name is in the first half of the buckets.
func (x *detachTest) name() []byte {
	for i := 0; ; i++ {
		name := fmt.Appendf(nil, "geo/%d", i)
		if protocol.Bucket(1, name, 64) < 32 {
			return name
		}
	}
}

// start begins a session at home in the second half of the buckets.
func (x *detachTest) start() *instanceSession {
	p := &instanceSession{epoch: 1}
	for ok := false; !ok; ok = protocol.HomeBucket(p.create, 64) >= 32 {
		x.creates++
		binary.BigEndian.PutUint64(p.create[:], x.creates)
	}
	m := protocol.SessionStart{Node: 1, CreateID: p.create[:], Key: p.create[:], Timeout: 10_000, Nonce: 1}
	e := x.home.do(x.t, x.now, Command{Kind: CmdSessionStart, Node: 1, Body: protocol.AppendBody(nil, &m)})
	if e.Status != protocol.StatusOK {
		x.t.Fatalf("start: %v %s", e.Status, e.Text)
	}
	p.id = e.Session
	return p
}

func (p *instanceSession) head() protocol.Head {
	p.seq++
	return protocol.Head{Session: p.id, Seq: p.seq, Low: p.seq}
}

func (x *detachTest) send(p *instanceSession, kind CommandKind, body protocol.Message) Event {
	x.t.Helper()
	e := x.track.do(x.t, x.now, Command{Kind: kind, Node: 1, Epoch: p.epoch, Body: protocol.AppendBody(nil, body)})
	x.deliverUpdates()
	return e
}

func (x *detachTest) register(p *instanceSession, takeover bool) Event {
	x.t.Helper()
	e := x.send(p, CmdTrackRegister, &protocol.TrackRegister{
		Head: p.head(), Name: x.name(), ID: "a", Location: "SAS", Role: protocol.InstanceFollower, Takeover: takeover,
	})
	if e.Status == protocol.StatusOK {
		p.registered = e.Result
	}
	return e
}

func (x *detachTest) attach(p *instanceSession, epoch uint64) Event {
	x.t.Helper()
	m := protocol.SessionAttach{Session: p.id, Node: 1, Epoch: epoch, Key: p.create[:], Timeout: 10_000, Nonce: 1}
	e := x.home.do(x.t, x.now, Command{Kind: CmdSessionAttach, Node: 1, Body: protocol.AppendBody(nil, &m)})
	if e.Status == protocol.StatusOK {
		p.epoch = epoch
	}
	x.deliverUpdates()
	return e
}

func (x *detachTest) detach(p *instanceSession) {
	x.t.Helper()
	x.home.do(x.t, x.now, Command{Kind: CmdDetach, Body: AppendDetach(nil,
		DetachBody{Sessions: []DetachItem{{Session: p.id, Epoch: p.epoch, LastContact: x.now}}})})
	x.deliverUpdates()
}

func (x *detachTest) stop(p *instanceSession) {
	x.t.Helper()
	m := protocol.SessionStop{Session: p.id, Epoch: p.epoch}
	x.home.do(x.t, x.now, Command{Kind: CmdSessionStop, Node: 1, Epoch: p.epoch, Body: protocol.AppendBody(nil, &m)})
	x.deliverUpdates()
}

// changeLeader has another leader take over the home.
func (x *detachTest) changeLeader() {
	x.t.Helper()
	x.home.term++
	x.home.do(x.t, x.now, Command{Kind: CmdTakeOver})
	x.deliverUpdates()
}

func (x *detachTest) advance(ms uint64) {
	x.t.Helper()
	x.now += ms
	x.home.do(x.t, x.now, Command{Kind: CmdDetach, Body: AppendDetach(nil, DetachBody{})})
	x.deliverUpdates()
}

// deliverUpdates has the track's shard learn what its leader is told by the home.
func (x *detachTest) deliverUpdates() {
	x.t.Helper()
	if x.home == x.track {
		return
	}
	var remotes []uint64
	for id := range x.track.m.Sessions().Remotes {
		remotes = append(remotes, id)
	}
	for _, id := range remotes {
		if v, ok := x.home.m.Sessions().Home(id); ok {
			x.track.do(x.t, x.now, Command{Kind: CmdRemoteUpdate,
				Body: AppendRemoteUpdate(nil, RemoteUpdateBody{Session: id, Epoch: v.Epoch, Detached: !v.Attached})})
		} else {
			x.track.do(x.t, x.now,
				Command{Kind: CmdRemoteEnded, Body: AppendRemoteEnded(nil, RemoteEndedBody{Sessions: []RemoteEnd{{Session: id}}})})
		}
	}
}

// TestDetachedSessionLosesInstanceID: a session keeps an instance's id while it is attached,
// wherever it is at home.
func TestDetachedSessionLosesInstanceID(t *testing.T) {
	for _, remote := range []bool{false, true} {
		for _, c := range []struct {
			name     string
			first    func(x *detachTest, holder *instanceSession)
			takeover bool
			taken    bool
		}{
			{"attached", func(*detachTest, *instanceSession) {}, false, false},
			{"attached, with takeover", func(*detachTest, *instanceSession) {}, true, true},
			{"detached", func(x *detachTest, p *instanceSession) { x.detach(p) }, false, true},
			{"attached again", func(x *detachTest, p *instanceSession) { x.detach(p); x.attach(p, 2) }, false, false},
			{"attached again under the same epoch",
				func(x *detachTest, p *instanceSession) { x.detach(p); x.attach(p, 1) }, false, false},
			{"attached again, and detached",
				func(x *detachTest, p *instanceSession) { x.detach(p); x.attach(p, 2); x.detach(p) }, false, true},
			{"detached by a leader's change", func(x *detachTest, _ *instanceSession) { x.changeLeader() },
				false, true},
			{"attached after a leader's change",
				func(x *detachTest, p *instanceSession) { x.changeLeader(); x.attach(p, 2) }, false, false},
			{"detached, in a shard that was restored", func(x *detachTest, p *instanceSession) {
				x.detach(p)
				x.track.m = (&benchMachine{m: x.track.m}).restored(x.t)
			}, false, true},
			{"stopped", func(x *detachTest, p *instanceSession) { x.stop(p) }, false, true},
			{"detached and expired", func(x *detachTest, p *instanceSession) { x.detach(p); x.advance(10_001) },
				false, true},
		} {
			t.Run(fmt.Sprintf("remote=%v/%s", remote, c.name), func(t *testing.T) {
				x := newDetachTest(t, remote)
				if e := x.register(x.members[0], false); e.Status != protocol.StatusOK {
					t.Fatalf("register: %v %s", e.Status, e.Text)
				}
				c.first(x, x.members[0])
				e := x.register(x.members[1], c.takeover)
				if want := map[bool]protocol.Status{true: protocol.StatusOK,
					false: protocol.StatusAlreadyExists}[c.taken]; e.Status != want {
					t.Fatalf("the id was answered %v (%s), want %v", e.Status, e.Text, want)
				}
			})
		}
	}
}

// TestHomeLocationDoesNotChangeAnswers: the answers to instances do not depend on where their
// sessions are at home.
func TestHomeLocationDoesNotChangeAnswers(t *testing.T) {
	taken, refused := 0, 0
	for seed := range uint64(60) {
		run := func(remote bool) (said []string) {
			x, r := newDetachTest(t, remote), rand.New(rand.NewPCG(seed, 14))
			for range 60 {
				i := r.IntN(len(x.members))
				if _, there := x.home.m.Sessions().Home(x.members[i].id); !there {
					x.members[i] = x.start() // no client makes requests on one that ended
				}
				p := x.members[i]
				var e Event
				switch n := r.IntN(12); n {
				case 0, 1, 2, 3:
					takeover := r.IntN(6) == 0
					holder := slices.IndexFunc(x.members,
						func(o *instanceSession) bool { return o != p && o.id == x.holder() })
					e = x.register(p, takeover)
					switch {
					case takeover || holder < 0:
					case e.Status == protocol.StatusOK:
						taken++
					case e.Status == protocol.StatusAlreadyExists:
						refused++
					}
				case 4, 5:
					e = x.send(p, CmdTrackPoll,
						&protocol.TrackPoll{Session: p.id, Name: x.name(), ID: "a", Incarnation: p.registered})
				case 6:
					e = x.send(p, CmdTrackUnregister,
						&protocol.TrackUnregister{Head: p.head(), Name: x.name(), ID: "a", Incarnation: p.registered})
				case 7, 8:
					x.detach(p)
				case 9:
					e = x.attach(p, p.epoch+uint64(r.IntN(2)))
				case 10:
					x.advance(uint64(r.IntN(6_000)))
				case 11:
					switch r.IntN(3) {
					case 0:
						x.changeLeader()
					case 1:
						x.stop(p)
					}
				}
				said = append(said, fmt.Sprintf("%v %d", e.Status, e.Result))
			}
			return said
		}
		home, remote := run(false), run(true)
		for i := range home {
			if home[i] != remote[i] {
				t.Fatalf("seed %d, step %d: at home in the track's shard the answer is %s, else %s",
					seed, i, home[i], remote[i])
			}
		}
	}
	if taken < 20 || refused < 20 {
		t.Fatalf("%d ids were taken and %d refused: too few to compare", taken, refused)
	}
}

// holder is the session that has the id, 0 none.
func (x *detachTest) holder() uint64 {
	for _, b := range x.track.m.buckets {
		for _, y := range b.objects[kindTrack] {
			return y.track().SessionOf("a")
		}
	}
	return 0
}

// TestDetachedStateEndsWithEpoch: what a home said about a detached session does not count under a
// newer attach epoch, whether a request of the session or a bucket that moves here tells of the
// epoch.
func TestDetachedStateEndsWithEpoch(t *testing.T) {
	for what, notify := range map[string]func(m *Machine, id, epoch uint64){
		"a request": func(m *Machine, id, epoch uint64) { requireSession(m, id, m.nodes[1], epoch, nil) },
		"a bucket": func(m *Machine, id, epoch uint64) {
			importSessionRecord(m, &chunkRecord{kind: chunkSessionRecord, id: id, node: 1, epoch: epoch, low: 1})
		},
	} {
		x := newDetachTest(t, true)
		p := x.members[0]
		if e := x.register(p, false); e.Status != protocol.StatusOK {
			t.Fatalf("register: %v %s", e.Status, e.Text)
		}
		x.detach(p)
		m := x.track.m
		if o := m.sessions.get(p.id); !m.detached(o) {
			t.Fatal("the home's word did not arrive")
		}
		notify(m, p.id, p.epoch)
		if !m.sessions.get(p.id).detached {
			t.Errorf("%s of the same epoch: it is not detached any more", what)
		}
		notify(m, p.id, p.epoch+1)
		if o := m.sessions.get(p.id); o.detached || o.epoch != p.epoch+1 {
			t.Errorf("%s of a newer epoch: epoch %d, detached %v", what, o.epoch, o.detached)
		}
	}
}
