package shard

import (
	"bytes"
	"fmt"
	"reflect"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard/rollout"
)

// Tracks in the world of moves. The model of one is a twin that never moved: the same calls at the
// same times, in the time of the bucket that the track began in. Answers must be the twin's, and
// when nothing moves the two have the same record, byte for byte.

var (
	moveTestTracks    = [][]byte{[]byte("geo/base"), []byte("geo/fresh"), []byte("s/c")}
	moveTestLocations = []string{"SAS", "MAN", "VLA"}
	moveTestInstances = []string{"i-0", "i-1", "i-2", "i-3", "i-4"}
)

type modelTrack struct {
	base      uint64         // its bucket's time is the world's and this
	state     *rollout.Track // nil as long as there is none
	out       rollout.Events
	instances map[string]*modelInstance // as their SDKs know them; they stay when the instance is gone
}

type modelInstance struct {
	session, incarnation, seq, target uint64
}

func (x *moveTest) trackOf(name []byte) *modelTrack {
	if x.tracks == nil {
		x.tracks = map[string]*modelTrack{}
	}
	p := x.tracks[string(name)]
	if p == nil {
		first := protocol.Bucket(1, name, moveTestBuckets) % moveTestShards
		p = &modelTrack{base: x.shards[first].base, instances: map[string]*modelInstance{}}
		x.tracks[string(name)] = p
	}
	return p
}

// trackCall is what a command does to the twin.
type trackCall func(t *rollout.Track, now rollout.Now, out *rollout.Events) (version uint64, err error)

// rollOut sends a few requests on tracks.
func (x *moveTest) rollOut() error {
	for range 1 + x.r.IntN(4) {
		if err := x.trackRequest(); err != nil {
			return err
		}
	}
	return nil
}

func (x *moveTest) trackRequest() error {
	if len(x.clients) == 0 {
		return nil
	}
	c := x.clients[x.r.IntN(len(x.clients))]
	name := moveTestTracks[x.r.IntN(len(moveTestTracks))]
	p := x.trackOf(name)
	id := moveTestInstances[x.r.IntN(len(moveTestInstances))]
	location := moveTestLocations[x.r.IntN(3)*x.r.IntN(2)]
	i := p.instances[id]
	if i != nil && x.r.IntN(10) > 0 {
		for _, o := range x.clients {
			if o.id == i.session {
				c = o
			}
		}
	}
	if p.state == nil {
		return x.makeTrack(c, name, p)
	}
	h := protocol.Head{Session: c.id, Seq: c.seq + 1, Low: c.low}
	switch n := x.r.IntN(40); {
	case n < 28 && i != nil:
		return x.poll(c, name, p, id, i)
	case n < 33:
		role := []protocol.TrackInstanceRole{protocol.InstanceFollower, protocol.InstanceLeader,
			protocol.InstanceLeader}[x.r.IntN(3)]
		takeover := x.r.IntN(2) == 0
		e, ok, err := x.sendTrack(c, name, CmdTrackRegister,
			&protocol.TrackRegister{Head: h, Name: name, ID: id, Location: location,
				Role: role, Meta: "m", Takeover: takeover},
			func(t *rollout.Track, now rollout.Now, out *rollout.Events) (uint64, error) {
				return t.Register(now, rollout.Registration{
					Session: c.id, ID: id, Location: location, Role: protocol.TrackInstanceRole(role),
					Meta: "m", Takeover: takeover,
				}, out)
			})
		if ok && e.Status == protocol.StatusOK {
			p.instances[id] = &modelInstance{session: c.id, incarnation: e.Result}
		}
		return err
	case n < 35 && p.state.Config().Source == protocol.SourceExternal:
		return x.generate(c, name, p, h)
	case n < 35:
		_, _, err := x.sendTrack(c, name, CmdTrackPublish,
			&protocol.TrackPublish{Head: h, Name: name, Payload: []byte("p")},
			func(t *rollout.Track, now rollout.Now, out *rollout.Events) (uint64, error) {
				return t.Publish(now, 0, []byte("p"), out)
			})
		return err
	case n < 36 && i != nil:
		_, _, err := x.sendTrack(c, name, CmdTrackUnregister,
			&protocol.TrackUnregister{Head: h, Name: name, ID: id, Incarnation: i.incarnation},
			func(t *rollout.Track, now rollout.Now, out *rollout.Events) (uint64, error) {
				return 0, t.Unregister(now, rollout.Caller{Session: c.id, ID: id, Incarnation: i.incarnation}, out)
			})
		return err
	case n < 39:
		return x.operate(c, name, p, h, id, location)
	case x.r.IntN(3) == 0:
		_, ok, err := x.sendTrack(c, name, CmdTrackDelete,
			&protocol.TrackDelete{Head: h, Name: name, Force: true}, nil)
		if ok {
			orders := x.w.orders
			b := protocol.Bucket(1, name, moveTestBuckets)
			orders[b] = max(orders[b], p.state.Revision())
			p.state = nil
			x.count("track deleted")
		}
		return err
	}
	return nil
}

func (x *moveTest) makeTrack(c *modelClient, name []byte, p *modelTrack) error {
	config := protocol.TrackConfig{
		Source: []protocol.TrackSource{protocol.SourceTSO, protocol.SourcePublished,
			protocol.SourceExternal}[x.r.IntN(3)],
		Locations: []protocol.LocationConfig{
			{Name: "SAS", Bake: []uint64{0, 500}[x.r.IntN(2)]}, {Name: "MAN", Delay: 1000, Share: 50, ShareBake: 300},
			{Name: "VLA", Delay: 2000},
		},
		StallTimeout: 4000, AutoDemote: x.r.IntN(2) == 0, SkipEmptyAfter: []uint64{0, 5000}[x.r.IntN(2)],
	}
	e, ok, err := x.sendTrack(c, name, CmdTrackCreate,
		&protocol.TrackCreate{Head: protocol.Head{Session: c.id, Seq: c.seq + 1, Low: c.low}, Name: name, Config: config}, nil)
	if !ok || err != nil {
		return err
	}
	if e.Status != protocol.StatusOK {
		return fmt.Errorf("create of track %s: %s", name, show(e))
	}
	former := x.w.orders[protocol.Bucket(1, name, moveTestBuckets)]
	p.state, err = rollout.NewAfter(rollout.Now{Log: p.base + x.now}, former, config, &p.out)
	p.out.Reset()
	if err == nil && e.Result != p.state.Revision() {
		return fmt.Errorf("track %s is made with revision %d, its twin with %d", name, e.Result, p.state.Revision())
	}
	return err
}

// generate is the generator outside, which is asked of the target as it was, and is at times late,
// away, or without its counter.
func (x *moveTest) generate(c *modelClient, name []byte, p *modelTrack, h protocol.Head) error {
	s := p.state.Describe(rollout.Now{Log: p.base + x.now})
	msg := &protocol.TrackAdvance{Head: h, Name: name, Expected: s.Locations[0].Target,
		Version: s.Last + uint64(x.r.IntN(4))}
	switch {
	case msg.Version == 0 || x.r.IntN(8) == 0:
		msg.Version, msg.Text = 0, "away"
	case x.r.IntN(8) == 0:
		msg.Expected++
	}
	e, ok, err := x.sendTrack(c, name, CmdTrackAdvance, msg, func(t *rollout.Track, now rollout.Now, out *rollout.Events) (uint64, error) {
		if msg.Version == 0 {
			return 0, t.SourceFailed(now, msg.Expected, msg.Text, out)
		}
		return 0, t.Advance(now, msg.Expected, msg.Version, out)
	})
	if ok && e.Status == protocol.StatusOK && msg.Version > 0 {
		x.count("version from outside")
	}
	return err
}

// operate is an operator.
func (x *moveTest) operate(c *modelClient, name []byte, p *modelTrack, h protocol.Head, id, location string) error {
	msg := &protocol.TrackAdmin{Head: h, Name: name, Verb: protocol.TrackVerb(1 + x.r.IntN(8))}
	switch msg.Verb {
	case protocol.TrackEvict:
		msg.ID = id
	case protocol.TrackRollback:
		rows, err := p.state.History(location)
		if err != nil || len(rows) == 0 {
			return nil
		}
		msg.Locations, msg.Version = []string{location}, rows[x.r.IntN(len(rows))].Version
	default:
		msg.Locations = []string{location}
	}
	e, ok, err := x.sendTrack(c, name, CmdTrackAdmin, msg, func(t *rollout.Track, now rollout.Now, out *rollout.Events) (uint64, error) {
		return 0, t.Operate(now, msg, out)
	})
	if ok && e.Status == protocol.StatusOK && msg.Verb == protocol.TrackRollback {
		x.count("track rolled back")
	}
	return err
}

// poll is an instance's cycle. What the leader could answer without the log is what the log
// answers, and changes nothing.
func (x *moveTest) poll(c *modelClient, name []byte, p *modelTrack, id string, i *modelInstance) error {
	msg := &protocol.TrackPoll{Session: c.id, Name: name, ID: id, Incarnation: i.incarnation, WithPayload: true}
	if i.target > 0 && x.r.IntN(8) > 0 {
		if x.r.IntN(3) > 0 {
			i.seq++
		}
		msg.Report = protocol.UpdateReport{Seq: max(i.seq, 1), Current: i.target,
			Target: i.target, Code: "OK", Attempts: 1}
		if x.r.IntN(12) == 0 {
			msg.Report.Code, msg.Report.Current = "TimestampOutOfRange", 0
		}
	}
	b := protocol.Bucket(1, name, moveTestBuckets)
	var peeked protocol.TrackPollReply
	var record []byte
	free := false
	at, served := x.serving(b)
	if served {
		x.catchUp(false)
		s := x.shards[at]
		free = s.m.Tracks().Peek(1, c.epoch, msg, s.base+x.now, 0, &peeked)
		record = s.m.buckets[b].objects[kindTrack][string(appendSemaphoreKey(nil, 1, name))].state.Append(nil)
	}
	var want protocol.TrackPollReply
	e, ok, err := x.sendTrack(c, name, CmdTrackPoll, msg, func(t *rollout.Track, now rollout.Now, out *rollout.Events) (uint64, error) {
		a, err := t.Poll(now, rollout.Caller{Session: c.id, ID: id, Incarnation: i.incarnation}, &msg.Report, out)
		want = a
		want.Payload, want.HasPayload = t.Payload(a.Version)
		return 0, err
	})
	if !ok || err != nil || e.Status != protocol.StatusOK {
		return err
	}
	s := x.shards[at]
	got := *e.Poll
	if free {
		if !reflect.DeepEqual(peeked, got) || !bytes.Equal(record,
			s.m.buckets[b].objects[kindTrack][string(appendSemaphoreKey(nil, 1, name))].state.Append(nil)) {
			return fmt.Errorf("a poll that changes nothing is answered %+v without the log, %+v by it, or changes something", peeked, got)
		}
		x.count("poll without the log")
	}
	if got.Until > 0 { // log times of the shard and of the twin
		got.Until, want.Until = got.Until-s.base, want.Until-p.base
	}
	if !reflect.DeepEqual(got, want) {
		return fmt.Errorf("poll of %s at %s: %+v, want %+v", id, name, got, want)
	}
	if got.Version > i.target && i.target > 0 {
		x.count("track advanced")
	}
	i.target = got.Version
	return nil
}

// sendTrack sends a request to the shard that serves the track, and to the twin; the call is nil
// for what the twin has no call for. ok: it was served.
func (x *moveTest) sendTrack(
	c *modelClient, name []byte, kind CommandKind, msg protocol.Message, call trackCall,
) (e Event, ok bool, err error) {
	p := x.trackOf(name)
	cmd := Command{Kind: kind, Node: 1, Epoch: c.epoch, Body: protocol.AppendBody(nil, msg)}
	i, served := x.serving(protocol.Bucket(1, name, moveTestBuckets))
	if !served {
		for k := range x.shards {
			if e := x.command(k, cmd); e.Status != protocol.StatusWrongShard {
				return e, false, fmt.Errorf("shard %d answers for a track that no shard serves: %s", k, show(e))
			}
		}
		x.count("track refused while frozen")
		return e, false, nil
	}
	x.catchUp(false)
	e = x.command(i, cmd)
	x.logf("shard %d: session %x, %s: kind %d %+v -> %s", i, c.id, name, kind, msg, show(e))
	if kind != CmdTrackPoll {
		if again := x.command(i, cmd); again.Status != e.Status || again.Result != e.Result {
			return e, true, fmt.Errorf("the same number is answered %s, then %s", show(e), show(again))
		}
		c.seq++
	}
	x.catchUp(false)
	if call == nil {
		return e, true, nil
	}
	x.endInstances(p)
	version, err := call(p.state, rollout.Now{Log: p.base + x.now}, &p.out)
	p.out.Reset()
	if want := protocol.StatusOf(err); e.Status != want || want == protocol.StatusOK && e.Result != version {
		return e, true, fmt.Errorf("%s: kind %d %+v: reply %s, the twin's is %v %d (%v)",
			name, kind, msg, show(e), want, version, err)
	}
	return e, true, nil
}

// endInstances tells the twin of the sessions that have ended.
func (x *moveTest) endInstances(p *modelTrack) {
	if p.state == nil {
		return
	}
	for _, id := range x.ended {
		if p.state.HasSession(id) {
			p.state.SessionEnded(rollout.Now{Log: p.base + x.now}, id, &p.out)
			p.out.Reset()
			x.count("instances ended")
		}
	}
}

// tickTracks lets time act on the twins, when it has passed.
func (x *moveTest) tickTracks() {
	for _, name := range moveTestTracks {
		p := x.trackOf(name)
		if p.state == nil {
			continue
		}
		for at, ok := p.state.Next(); ok && at <= p.base+x.now; at, ok = p.state.Next() {
			p.state.Tick(rollout.Now{Log: p.base + x.now}, &p.out)
			p.out.Reset()
			x.count("track ticked")
		}
	}
}

// sameTracks compares the tracks with their twins, when no move is under way and nothing is left
// over.
func (x *moveTest) sameTracks() error {
	count := 0
	for _, s := range x.shards {
		s.m.Tracks().From(0, nil, func(uint64, []byte) bool {
			count++
			return true
		})
	}
	for _, name := range moveTestTracks {
		p := x.trackOf(name)
		if p.state == nil {
			continue
		}
		count--
		x.endInstances(p)
		b := protocol.Bucket(1, name, moveTestBuckets)
		o := x.shards[x.owner[b]].m.buckets[b].objects[kindTrack][string(appendSemaphoreKey(nil, 1, name))]
		if o == nil {
			return fmt.Errorf("track %s is lost", name)
		}
		if !bytes.Equal(o.state.Append(nil), p.state.Append(nil)) {
			at := p.base + x.now
			return fmt.Errorf("track %s is %+v, its twin %+v", name, o.track().Describe(rollout.Now{Log: at}),
				p.state.Describe(rollout.Now{Log: at}))
		}
	}
	if count != 0 {
		return fmt.Errorf("%d tracks more than there were made", count)
	}
	return nil
}

// sameObjectCopies compares the copies of the objects of a kind at the source and the target of a
// move. parts counts their members or instances.
func sameObjectCopies(kind kindNumber, x, y *bucket) (parts int, err error) {
	all, copies := x.objects[kind], y.objects[kind]
	if len(all) != len(copies) {
		return 0, fmt.Errorf("bucket %d has %d objects of kind %d at the target, want %d",
			x.number, len(copies), kind, len(all))
	}
	for key, o := range all {
		c := copies[key]
		if c == nil || !bytes.Equal(c.state.Append(nil), o.state.Append(nil)) {
			return 0, fmt.Errorf("object %q of kind %d is another at the target", key, kind)
		}
		parts += o.state.size()
	}
	return parts, nil
}
