package rollout

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server/servertest/seeds"
)

// model is the machine once more, written plainly from the rules: nothing is counted ahead, every
// question is a loop over everything, no history is ever cut. Gates and shares are not in it: the
// property test without the model holds them to the invariants.
type model struct {
	c         protocol.TrackConfig
	last      uint64
	paused    pauseMode
	locs      map[string]*modelLoc
	published []uint64
	withdrawn map[uint64]bool
	insts     map[string]*modelInst
}

type modelLoc struct {
	target, gen, reelectAt, floor, promoted, empty uint64
	rows                                           []modelRow
	rollback, asked, excluded                      bool
	paused                                         pauseMode
}

type modelRow struct {
	version, at, converged uint64
	skip                   bool
}

type modelInst struct {
	loc           string
	leader        bool
	r             protocol.UpdateReport
	rGen          uint64
	sent, sentGen uint64
	sentAt        uint64
}

func (m *model) in(loc string) (list []*modelInst) {
	for _, p := range m.insts {
		if p.loc == loc {
			list = append(list, p)
		}
	}
	return list
}

func (m *model) pos(loc string) int {
	return slices.IndexFunc(m.c.Locations, func(l protocol.LocationConfig) bool { return l.Name == loc })
}

func (m *model) pred(loc string, clock uint64) string {
	for i := m.pos(loc) - 1; i >= 0; i-- {
		n := m.c.Locations[i].Name
		l := m.locs[n]
		empty := len(m.in(n)) == 0 && m.c.SkipEmptyAfter > 0 && clock-l.empty >= m.c.SkipEmptyAfter
		if !l.excluded && !empty {
			return n
		}
	}
	return ""
}

func (m *model) row(l *modelLoc) *modelRow {
	for i := len(l.rows) - 1; i >= 0; i-- {
		if l.rows[i].version == l.target {
			return &l.rows[i]
		}
	}
	return nil
}

// next is what the location would take now, 0 nothing.
func (m *model) next(loc string, advance bool, clock, wall uint64) uint64 {
	l := m.locs[loc]
	least := max(l.target, l.floor)
	p := m.pred(loc, clock)
	bad := map[uint64]bool{} // by locations that are looked past
	for i := m.pos(p) + 1; i < m.pos(loc); i++ {
		past := m.c.Locations[i].Name
		x := m.locs[past]
		for _, r := range x.rows {
			bad[r.version] = bad[r.version] || r.skip
		}
		bad[x.target] = bad[x.target] || x.target != 0 && m.explicit(past)
	}
	if p != "" && m.explicit(p) { // the next poll there skips it
		bad[m.locs[p].target] = true
	}
	promoted := l.promoted
	if bad[promoted] {
		promoted = 0
	}
	if p != "" {
		var best *modelRow
		for i := range m.locs[p].rows {
			r := &m.locs[p].rows[i]
			from := r.at
			if m.c.DelayFrom == protocol.FromConverged {
				from = r.converged
			}
			if r.skip || bad[r.version] || m.withdrawn[r.version] || from == 0 || clock < from ||
				clock-from < m.c.Locations[m.pos(loc)].Delay {
				continue
			}
			if best == nil || r.at > best.at || r.at == best.at && r.version >= best.version {
				best = r
			}
		}
		if promoted > least && !m.skipped(p, promoted) {
			return promoted
		}
		if best != nil && best.version > least {
			return best.version
		}
		return 0
	}
	if promoted > least {
		return promoted
	}
	if advance && len(l.rows) > 0 && clock-l.rows[len(l.rows)-1].at < m.c.MinAdvanceInterval {
		return 0
	}
	if m.c.Source == protocol.SourceTSO {
		return max(m.last+1, wall<<18)
	}
	best := uint64(0)
	for _, v := range m.published {
		if !m.withdrawn[v] && !bad[v] && v > least {
			best = v
		}
	}
	return best
}

// explicit reports whether the target is bad: an instance reported it, or an operator said so.
func (m *model) explicit(loc string) bool {
	l := m.locs[loc]
	for _, q := range m.in(loc) {
		if q.r.Target == l.target && q.rGen == l.gen && q.r.Code == DefaultExplicitCode {
			return true
		}
	}
	return l.asked
}

func (m *model) skipped(loc string, v uint64) bool {
	rows := m.locs[loc].rows
	for i := len(rows) - 1; i >= 0; i-- {
		if rows[i].version == v {
			return rows[i].skip || m.withdrawn[v]
		}
	}
	return true
}

func (m *model) set(l *modelLoc, v, clock uint64) {
	l.target, l.gen = v, l.gen+1
	l.rows = append(l.rows, modelRow{version: v, at: clock})
	l.promoted, l.asked, l.rollback = 0, false, false
	m.last = max(m.last, v)
}

func (m *model) has(p *modelInst, l *modelLoc) bool {
	return p.r.Current == l.target || !l.rollback && p.r.Current > l.target && p.r.Current <= m.last
}

// poll: section by section as the algorithm is described. A report that repeats the last one is
// noted only if some were left out before it.
func (m *model) poll(id string, r *protocol.UpdateReport, now Now) uint64 {
	p := m.insts[id]
	l := m.locs[p.loc]
	if m.pos(p.loc) < 0 {
		return 0
	}
	clock := now.Log
	if r != nil && r.Seq > p.r.Seq {
		again := r.Target == l.target && p.rGen != l.gen && r.Code != CodeOK && r.Code != CodeNone
		same := p.r
		same.Seq = r.Seq
		if again || r.Seq > p.r.Seq+1 || same != *r {
			p.r, p.rGen = *r, l.gen
		}
	}
	m.decide(p, l, clock, now.Wall)
	if l.target != 0 && (p.sent != l.target || p.sentGen != l.gen) {
		p.sent, p.sentGen, p.sentAt = l.target, l.gen, clock
	}
	return l.target
}

func (m *model) decide(p *modelInst, l *modelLoc, clock, wall uint64) {
	if l.excluded {
		return
	}
	paused := max(m.paused, l.paused)
	if l.target == 0 {
		if v := m.next(p.loc, false, clock, wall); paused == running && v != 0 {
			m.set(l, v, clock)
		}
		return
	}
	explicit, implicitLeader, implicitAny, leaders, behind := m.explicit(p.loc) || m.row(l).skip, false, false, 0, 0
	for _, q := range m.in(p.loc) {
		about := q.r.Target == l.target && q.rGen == l.gen
		failing := about && q.r.Code == CodeSourceError && q.r.Attempts > 3 && q.sent == l.target &&
			q.sentGen == l.gen && clock-q.sentAt > 60_000
		implicitAny = implicitAny || failing
		if q.leader {
			leaders++
			implicitLeader = implicitLeader || failing
			if !m.has(q, l) {
				behind++
			}
		}
	}
	implicit := implicitLeader || leaders == 0 && implicitAny
	if explicit && paused != pausedHard || implicit && !explicit && paused == running {
		if explicit {
			for i := range l.rows {
				l.rows[i].skip = l.rows[i].skip || l.rows[i].version == l.target
			}
		}
		if l.reelectAt != 0 && clock-l.reelectAt < m.c.ReelectMinInterval {
			return
		}
		if v := m.next(p.loc, false, clock, wall); v != 0 {
			m.set(l, v, clock)
			l.reelectAt = clock
		}
		return
	}
	if !p.leader || behind > 0 || explicit && paused != pausedHard {
		return
	}
	if row := m.row(l); row.converged == 0 {
		row.converged = clock
		l.rollback = false
	}
	if v := m.next(p.loc, true, clock, wall); paused == running && v != 0 {
		m.set(l, v, clock)
	}
}

// TestTrackMatchesModel makes random calls to both, and compares every answer, every target and the
// invariants.
func TestTrackMatchesModel(t *testing.T) {
	seen := map[string]int{}
	for seed := range seeds.Of(t, 80, 80) {
		newRandomRun(t, seed, true).run(300, seen)
	}
	requireSeen(t, seen, protocol.ReasonInitial, protocol.ReasonAdvance, protocol.ReasonExplicit,
		protocol.ReasonImplicit, protocol.ReasonOperator, protocol.ReasonPromote, protocol.ReasonRollback)
	requireSeen(t, seen, protocol.StateUnset, protocol.StateConverging, protocol.StateConverged,
		protocol.StateWaitingDelay, protocol.StateReelectionPending, protocol.StatePaused,
		protocol.StateEmpty, protocol.StateSkipped, protocol.StateExcluded,
		protocol.StateNoLeader, protocol.StateReady, protocol.StateRemoved)
}

// TestInvariants is the same without the model, with gates, shares, bake times and auto-demotion.
func TestInvariants(t *testing.T) {
	seen := map[string]int{}
	for seed := range seeds.Of(t, 60, 60) {
		newRandomRun(t, seed, false).run(300, seen)
	}
	requireSeen(t, seen, protocol.TrackEventTarget, protocol.TrackEventWiden, protocol.TrackEventState,
		protocol.TrackEventConverged, protocol.TrackEventSkip, protocol.TrackEventGate,
		protocol.TrackEventGateDone, protocol.TrackEventJoined, protocol.TrackEventLeft,
		protocol.TrackEventRole,
		protocol.TrackEventAdmin, protocol.TrackEventPublished, protocol.TrackEventAlert)
	requireSeen(t, seen, protocol.StateStalled, protocol.StateWaitingGate, protocol.StateWaitingShare)
}

// came fails for what never happened: a test that met no rollback says nothing of them.
func requireSeen[K fmt.Stringer](t *testing.T, seen map[string]int, list ...K) {
	for _, k := range list {
		if seen[k.String()] < 3 && !seeds.Chosen() {
			t.Errorf("%s came to bear %d times: the histories are poor", k, seen[k.String()])
		}
	}
}

// randomRun is one history.
type randomRun struct {
	t        *testing.T
	rng      *rand.Rand
	track    *Track
	replica  *Track // restored now and then, and given the same calls
	m        *model // nil: without
	now      Now
	out      Events
	other    Events
	callers  map[string]*Caller
	seqs     map[string]uint64
	before   map[string]uint64 // targets, for I1
	promoted map[string]bool
	gateRuns map[string]bool
	trace    []string
	seen     map[string]int // what came to bear
}

var randomLocations = []string{"SAS", "MAN", "VLA", "KZN"}

func newRandomRun(t *testing.T, seed uint64, withModel bool) *randomRun {
	x := &randomRun{t: t, rng: rand.New(rand.NewPCG(seed, 1)), now: Now{Log: 1000, Wall: 5000},
		callers: map[string]*Caller{}, seqs: map[string]uint64{},
		before: map[string]uint64{}, promoted: map[string]bool{}, gateRuns: map[string]bool{},
		seen: map[string]int{}}
	c := x.config(protocol.TrackConfig{Source: protocol.SourceTSO, Locations: []protocol.LocationConfig{{Name: "SAS"},
		{Name: "MAN", Delay: 2000}, {Name: "VLA", Delay: 5000}}}, withModel)
	c.Source = []protocol.TrackSource{protocol.SourceTSO, protocol.SourcePublished}[x.rng.IntN(2)]
	if !withModel && x.rng.IntN(3) == 0 {
		c.Source = protocol.SourceExternal
	}
	c.DelayFrom = protocol.DelayFrom(x.rng.IntN(2))
	track, err := New(x.now, c, &x.out)
	if err != nil {
		t.Fatal(err)
	}
	x.track = track
	if withModel {
		x.m = &model{c: track.Config(), locs: map[string]*modelLoc{}, insts: map[string]*modelInst{},
			withdrawn: map[uint64]bool{}}
		for _, l := range c.Locations {
			x.m.locs[l.Name] = &modelLoc{empty: x.now.Log}
		}
	}
	x.restore()
	return x
}

func (x *randomRun) config(c protocol.TrackConfig, plain bool) protocol.TrackConfig {
	c.SkipEmptyAfter = []uint64{0, 0, 20_000}[x.rng.IntN(3)]
	c.MinAdvanceInterval = []uint64{0, 500}[x.rng.IntN(2)]
	if plain {
		return c
	}
	c.AutoDemote, c.StallTimeout = x.rng.IntN(2) == 0, 15_000
	c.Retention = 10_000
	c.KeepRemoved = x.rng.IntN(2) == 0
	for i := range c.Locations {
		l := &c.Locations[i]
		l.Bake, l.Share, l.ShareBake, l.Gates =
			[]uint64{0, 1500}[x.rng.IntN(2)], []uint8{0, 30, 50}[x.rng.IntN(3)], []uint64{0, 700}[x.rng.IntN(2)], nil
		if x.rng.IntN(3) == 0 {
			l.Gates = []protocol.GateConfig{{Name: "smoke", Kind: protocol.GateCommand, Timeout: 3000, Retry: 1000},
				{Name: "load", Kind: protocol.GateWebhook, Timeout: 3000, Retry: 1000}}
		}
	}
	return c
}

func (x *randomRun) restore() {
	b := x.track.Append(nil)
	u, err := Decode(b)
	if err != nil {
		x.t.Fatalf("%v\n%v", err, x.trace)
	}
	x.replica = u
}

// both makes a call on the track and on its replica.
func (x *randomRun) both(text string, call func(*Track, *Events) error) error {
	x.trace = append(x.trace, fmt.Sprintf("%d: %s", x.now.Log, text))
	x.out.Reset()
	x.other.Reset()
	digest := x.track.Digest()
	err := call(x.track, &x.out)
	if again := call(x.replica, &x.other); fmt.Sprint(again) != fmt.Sprint(err) ||
		!slices.Equal(x.out.List, x.other.List) {
		x.t.Fatalf("the restored track decides otherwise: %v, %v\n%v\n%v\n%v",
			err, again, x.out.List, x.other.List, x.trace)
	}
	// which keeps the generator's error
	if err != nil && x.track.Digest() != digest && !strings.HasPrefix(text, "advance ") {
		x.t.Fatalf("refused (%v), but changed: %v", err, x.trace)
	}
	for _, c := range x.out.List {
		if c.Kind == protocol.TrackEventGate { // an outcome names one run
			run := fmt.Sprintf("%s %s, version %d, attempt %d", c.Location, c.Gate, c.Version, c.Attempt)
			if x.gateRuns[run] {
				x.t.Fatalf("two runs are %s\n%v", run, x.trace)
			}
			x.gateRuns[run] = true
		}
	}
	return err
}

func (x *randomRun) run(steps int, seen map[string]int) {
	x.seen = seen
	for range steps {
		x.step()
		if x.track.Digest() != x.replica.Digest() {
			x.t.Fatalf("digests differ: %v", x.trace)
		}
		if err := x.track.Check(); err != nil {
			x.t.Fatalf("%v: %v", err, x.trace)
		}
		checkCounts(x.t, x.track)
		x.invariants()
		if x.m != nil {
			x.compare()
			x.forgetPromotions()
		}
		if x.rng.IntN(20) == 0 {
			x.restore()
		}
	}
}

// invariants I1 to I5; I6 is the replica's agreement.
func (x *randomRun) invariants() {
	config := x.track.Config()
	for _, c := range x.out.List {
		x.seen[c.Kind.String()]++
		x.seen[c.Reason.String()]++
		x.seen[c.State.String()]++
		if c.Kind != protocol.TrackEventTarget || c.Version == x.before[c.Location] {
			continue
		}
		if c.Version < x.before[c.Location] && c.Reason != protocol.ReasonRollback {
			x.t.Fatalf("I1: %s went from %d to %d\n%v", c.Location, x.before[c.Location], c.Version, x.trace)
		}
		l, err := x.track.find(c.Location)
		if err != nil {
			x.t.Fatal(err)
		}
		if p := x.track.predecessor(l, x.track.clock); p != nil && c.Reason != protocol.ReasonRollback &&
			c.Reason != protocol.ReasonPromote {
			if x.promoted[c.Location+"/"+strconv.FormatUint(c.Version, 10)] {
				continue // a re-election or a first target may take what was promoted
			}
			if !slices.ContainsFunc(p.history, func(r row) bool {
				return r.version == c.Version && !r.skip && r.at+config.Locations[l.pos].Delay <= x.track.clock
			}) {
				x.t.Fatalf("I3: %s has %d, which %s had not, or not for long enough\n%v",
					c.Location, c.Version, p.name, x.trace)
			}
		}
	}
	for _, l := range x.track.locations {
		if l.target != x.before[l.name] && !slices.ContainsFunc(x.out.List, func(c protocol.TrackEvent) bool {
			return c.Kind == protocol.TrackEventTarget && c.Location == l.name && c.Version == l.target
		}) {
			x.t.Fatalf("I4: %s moved in silence\n%v", l.name, x.trace)
		}
		x.before[l.name] = l.target
	}
}

func (x *randomRun) compare() {
	for name, l := range x.m.locs {
		i := slices.IndexFunc(x.track.locations, func(o *location) bool { return o.name == name })
		if i < 0 {
			continue
		}
		if got := x.track.locations[i]; got.target != l.target || got.generation != l.gen {
			x.t.Fatalf("%s: target %d, the model says %d\n%v", name, got.target, l.target, x.trace)
		}
	}
}
