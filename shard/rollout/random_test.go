package rollout

import (
	"errors"
	"fmt"
	"reflect"
	"slices"

	"github.com/signalbox-dev/signalbox/protocol"
)

// step makes one random call.
func (x *randomRun) step() {
	if x.rng.IntN(3) == 0 { // time stands still at other times, as during an election
		n := []uint64{1, 100, 1000, 3000, 20_000}[x.rng.IntN(5)]
		if x.rng.IntN(20) == 0 {
			n = 61_000
		}
		x.now.Log += n
		x.now.Wall += n - uint64(x.rng.IntN(2))*min(n, 50)
	}
	ids := make([]string, 0, len(x.callers))
	for id := range x.callers {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	order := x.track.Config().Locations
	loc := order[x.rng.IntN(len(order))].Name
	k := x.rng.IntN(100)
	switch {
	case k < 8 || len(ids) == 0:
		x.join(loc)
	case k < 11:
		x.leave(ids[x.rng.IntN(len(ids))])
	case k < 14:
		id := ids[x.rng.IntN(len(ids))]
		role := protocol.TrackInstanceRole(1 + x.rng.IntN(2))
		err := x.both(fmt.Sprintf("role %s %v", id, role),
			func(t *Track, out *Events) error { return t.SetRole(x.now, *x.callers[id], role, out) })
		if err == nil && x.m != nil {
			x.m.insts[id].leader = role == protocol.InstanceLeader
		}
	case k < 80:
		x.poll(ids[x.rng.IntN(len(ids))])
	case k < 84:
		_ = x.both("tick", func(t *Track, out *Events) error { t.Tick(x.now, out); return nil })
	case k < 88:
		x.source()
	case k < 91:
		x.configure()
	default:
		x.admin(loc)
	}
}

func (x *randomRun) join(loc string) {
	id := fmt.Sprintf("i%d", x.rng.IntN(8))
	r := Registration{Session: 1 + uint64(x.rng.IntN(20)), ID: id, Location: loc,
		Role: protocol.TrackInstanceRole(1 + x.rng.IntN(2)), Takeover: x.rng.IntN(2) == 0}
	var incarnation uint64
	err := x.both(fmt.Sprintf("join %+v", r), func(t *Track, out *Events) (err error) {
		incarnation, err = t.Register(x.now, r, out)
		return err
	})
	if err != nil || x.callers[id] != nil && x.callers[id].Incarnation == incarnation {
		return
	}
	x.gone(id)
	x.callers[id] = &Caller{Session: r.Session, ID: id, Incarnation: incarnation}
	x.seqs[id] = 0
	if x.m != nil {
		x.m.insts[id] = &modelInst{loc: loc, leader: r.Role == protocol.InstanceLeader}
	}
}

func (x *randomRun) gone(id string) {
	delete(x.callers, id)
	if x.m == nil || x.m.insts[id] == nil {
		return
	}
	loc := x.m.insts[id].loc
	delete(x.m.insts, id)
	if len(x.m.in(loc)) == 0 {
		x.m.locs[loc].empty = x.now.Log
	}
}

func (x *randomRun) leave(id string) {
	session := x.callers[id].Session
	switch x.rng.IntN(3) {
	case 0:
		_ = x.both("leave "+id, func(t *Track, out *Events) error { return t.Unregister(x.now, *x.callers[id], out) })
		x.gone(id)
	case 1:
		_ = x.both("drop "+id, func(t *Track, out *Events) error { return t.Evict(x.now, id, out) })
		x.gone(id)
	default:
		_ = x.both(fmt.Sprintf("session %d ends", session),
			func(t *Track, out *Events) error { t.SessionEnded(x.now, session, out); return nil })
		for other, c := range x.callers {
			if c.Session == session {
				x.gone(other)
			}
		}
	}
}

func (x *randomRun) poll(id string) {
	c := *x.callers[id]
	var r *protocol.UpdateReport
	if p := x.track.instances.byID[id]; x.rng.IntN(5) > 0 {
		x.seqs[id]++
		r = &protocol.UpdateReport{Seq: x.seqs[id], Current: p.report.Current, Target: p.sent}
		switch k := x.rng.IntN(20); {
		case k < 14:
			r.Current, r.Code = p.sent, CodeOK
		case k < 15:
			r.Code = DefaultExplicitCode
		case k < 18:
			r.Code, r.Attempts = CodeSourceError, uint64(x.rng.IntN(8))
		case k < 19: // it may have a version that is still to come
			r.Current = x.track.last + uint64(x.rng.IntN(3))
		}
		if x.rng.IntN(20) == 0 {
			r.Seq = uint64(x.rng.IntN(int(r.Seq) + 1))
		}
	}
	if x.rng.IntN(40) == 0 {
		c.Incarnation += uint64(x.rng.IntN(3))
	}
	text := fmt.Sprintf("poll %s", id)
	if r != nil {
		text += fmt.Sprintf(" %+v", *r)
	}
	var got protocol.TrackPollReply
	err := x.both(text, func(t *Track, out *Events) (err error) {
		digest := t.Digest()
		peeked, ok, peekErr := t.Peek(x.now, c, r)
		got, err = t.Poll(x.now, c, r, out)
		if same := t.Digest() == digest; ok != same || ok && (!reflect.DeepEqual(peeked, got) || !reflect.DeepEqual(peekErr, err)) {
			x.t.Fatalf("peek says %v, %v, %v; the poll gave %v, %v, and changed: %v\n%v",
				peeked, ok, peekErr, got, err, !same, x.trace)
		}
		return err
	})
	if c != *x.callers[id] {
		if !errors.Is(err, protocol.StatusBadSession) {
			x.t.Fatalf("not fenced: %v", err)
		}
		return
	}
	if x.m == nil {
		return
	}
	if want := x.m.poll(id, r, x.now); err == nil && got.Version != want {
		x.t.Fatalf("answer %d, the model says %d\n%v", got.Version, want, x.trace)
	}
}

func (x *randomRun) source() {
	switch x.track.Config().Source {
	case protocol.SourcePublished:
		if len(x.track.published) > 0 && x.rng.IntN(6) == 0 {
			v := x.track.published[x.rng.IntN(len(x.track.published))].version
			_ = x.both(fmt.Sprintf("withdraw %d", v),
				func(t *Track, out *Events) error { return t.Withdraw(x.now, v, out) })
			if x.m != nil {
				x.m.withdrawn[v] = true
				for _, l := range x.m.locs {
					if l.promoted == v {
						l.promoted = 0
					}
				}
			}
			return
		}
		var v uint64
		publish := func(t *Track, out *Events) (err error) {
			v, err = t.Publish(x.now, 0, []byte("x"), out)
			return err
		}
		if x.both("publish", publish) == nil && x.m != nil {
			x.m.published = append(x.m.published, v)
			x.m.last = v
		}
	case protocol.SourceExternal:
		l := x.track.first(x.now.Log)
		if l == nil {
			return
		}
		expected, v := l.target, x.track.last+uint64(x.rng.IntN(3))
		_ = x.both(fmt.Sprintf("advance %d %d", expected, v),
			func(t *Track, out *Events) error { return t.Advance(x.now, expected, v, out) })
	}
}

func (x *randomRun) configure() {
	c := x.track.Config()
	c.Locations = slices.Clone(c.Locations)
	switch x.rng.IntN(4) {
	case 0:
		if len(c.Locations) > 1 {
			i := x.rng.IntN(len(c.Locations))
			c.Locations = slices.Delete(c.Locations, i, i+1)
		}
	case 1:
		for _, n := range randomLocations {
			if !slices.ContainsFunc(c.Locations, func(l protocol.LocationConfig) bool { return l.Name == n }) {
				c.Locations = slices.Insert(c.Locations, x.rng.IntN(len(c.Locations)+1),
					protocol.LocationConfig{Name: n, Delay: 1000})
				break
			}
		}
	case 2:
		x.rng.Shuffle(len(c.Locations),
			func(i, j int) { c.Locations[i], c.Locations[j] = c.Locations[j], c.Locations[i] })
	default:
		c.Locations[x.rng.IntN(len(c.Locations))].Delay = uint64(x.rng.IntN(6000))
	}
	c = x.config(c, x.m != nil)
	revision := x.track.Revision() - uint64(x.rng.IntN(10)/9)
	if x.both(fmt.Sprintf("config %+v", c.Locations),
		func(t *Track, out *Events) error { return t.Configure(x.now, revision, c, out) }) != nil || x.m == nil {
		return
	}
	old := x.m.c
	x.m.c = x.track.Config()
	for n, l := range x.m.locs {
		if x.m.pos(n) < 0 {
			l.paused, l.excluded, l.promoted, l.asked = running, false, 0, false
		}
	}
	for _, c := range x.m.c.Locations {
		was := slices.ContainsFunc(old.Locations, func(l protocol.LocationConfig) bool { return l.Name == c.Name })
		l := x.m.locs[c.Name]
		if l == nil {
			l = &modelLoc{}
			x.m.locs[c.Name] = l
		}
		if !was && len(x.m.in(c.Name)) == 0 {
			l.empty = x.now.Log
		}
	}
	x.forgetPromotions()
}

// forgetPromotions: what a promotion was for may not be passed on any more.
func (x *randomRun) forgetPromotions() {
	for _, l := range x.track.ordered() {
		if x.m != nil {
			x.m.locs[l.name].promoted = l.promoted
		}
	}
}

func (x *randomRun) admin(loc string) {
	var l *modelLoc
	if x.m != nil {
		l = x.m.locs[loc]
	}
	switch x.rng.IntN(8) {
	case 0:
		names, hard := [][]string{{loc}, nil}[x.rng.IntN(2)], x.rng.IntN(2) == 0
		_ = x.both(fmt.Sprint("pause ", names), func(t *Track, out *Events) error { return t.Pause(x.now, names, hard, out) })
		if x.m != nil {
			at := &x.m.paused
			if names != nil {
				at = &l.paused
			}
			if *at = pausedSoft; hard {
				*at = pausedHard
			}
		}
	case 1, 2:
		for _, names := range [][]string{{loc}, nil} {
			_ = x.both(fmt.Sprint("resume ", names), func(t *Track, out *Events) error { return t.Resume(x.now, names, out) })
		}
		if x.m != nil {
			x.m.paused, l.paused = running, running
		}
	case 3:
		if x.both("promote "+loc, func(t *Track, out *Events) error { return t.Promote(x.now, []string{loc}, out) }) == nil {
			x.promoted[fmt.Sprintf("%s/%d", loc, x.track.promotedOf(loc))] = true
			x.forgetPromotions()
		}
	case 4:
		x.rollback(loc, l)
	case 5:
		if x.both("reelect "+loc, func(t *Track, out *Events) error { return t.Reelect(x.now, []string{loc}, out) }) == nil &&
			x.m != nil {
			l.asked = true
		}
	case 6:
		_ = x.both("exclude "+loc, func(t *Track, out *Events) error { return t.Exclude(x.now, []string{loc}, out) })
		if x.m != nil {
			l.excluded, l.promoted = true, 0
		}
	default:
		_ = x.both("include "+loc, func(t *Track, out *Events) error { return t.Include(x.now, []string{loc}, out) })
		if x.m != nil {
			l.excluded = false
		}
		for _, g := range x.track.PendingGates() {
			o := protocol.GateOutcome(1 + x.rng.IntN(3))
			_ = x.both(fmt.Sprintf("gate %+v %d", g, o), func(t *Track, out *Events) error {
				return t.ReportGate(x.now, g.Location, g.Version, g.Gate.Name, g.Attempt, o, "", out)
			})
			x.invariants()
		}
	}
}

func (t *Track) promotedOf(loc string) uint64 {
	l, _ := t.find(loc)
	return l.promoted
}

func (x *randomRun) rollback(loc string, l *modelLoc) {
	rows, _ := x.track.History(loc)
	if len(rows) == 0 {
		return
	}
	v := rows[x.rng.IntN(len(rows))].Version
	if x.both(fmt.Sprintf("rollback %s %d", loc, v),
		func(t *Track, out *Events) error { return t.Rollback(x.now, []string{loc}, v, out) }) != nil || x.m == nil {
		return
	}
	l.floor = max(l.floor, l.target)
	for i := range l.rows {
		if l.rows[i].version > v {
			l.rows[i].skip = true
		}
	}
	x.m.set(l, v, x.now.Log)
	l.rollback = true
	x.forgetPromotions()
}
