package governor

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard/meta"
)

// TestClusterScripts runs testdata/cluster: what happens to instances, and what the governor makes
// of it.
func TestClusterScripts(t *testing.T) {
	datadriven.Walk(t, "testdata/cluster", func(t *testing.T, path string) {
		s := &clusterScript{progress: NewProgress()}
		datadriven.RunTest(t, path, s.run)
	})
}

type clusterScript struct {
	*cluster
	gov      *Governor
	progress *Progress
}

func (s *clusterScript) run(t *testing.T, d *datadriven.TestData) string {
	text := func(key string) (v string) {
		if d.HasArg(key) {
			d.ScanArgs(t, key, &v)
		}
		return v
	}
	number := func(key string, otherwise int) uint32 {
		if d.HasArg(key) {
			d.ScanArgs(t, key, &otherwise)
		}
		return uint32(otherwise)
	}
	if d.Cmd == "bootstrap" {
		var more []meta.TierSpec
		if n := number("cold", 0); n > 0 { // another tier with so many buckets, which may not vote
			more = append(more, meta.TierSpec{Name: "cold", Buckets: n, ShardsPerReplicaset: 1,
				ReplicationFactor: number("cold-factor", 1)})
		}
		if d.HasArg("restored") {
			s.cluster = newRestoredCluster(number("buckets", 64), number("shards", 2), more...)
		} else {
			s.cluster = newCluster(number("buckets", 64), number("factor", 3), number("shards", 2), more...)
		}
		s.gov, s.progress = s.governor(), NewProgress()
		return ""
	}
	var instance meta.Instance
	if len(d.CmdArgs) > 0 {
		instance, _ = s.machine.InstanceByName(d.CmdArgs[0].Key)
	}
	said := func(res meta.Result) string {
		if res.Status != protocol.StatusOK {
			return fmt.Sprintf("%s: %s\n", res.Status, res.Message)
		}
		return ""
	}
	switch d.Cmd {
	case "join":
		domain := strings.NewReplacer(":", "=", ";", ",").Replace(text("domain"))
		return said(s.join(d.CmdArgs[0].Key, text("tier"), text("replicaset"), domain))
	case "kill": // and the failure detector notices
		s.kill(instance.ID)
		for range 11 {
			s.heartbeat()
		}
		s.detectFailures()
	case "vanish": // and nobody has noticed yet
		s.kill(instance.ID)
	case "heartbeats": // and nobody has noticed anything yet
		for range number("n", 1) {
			s.heartbeat()
		}
	case "start":
		s.start(instance.ID)
	case "shutdown":
		return said(s.apply(&meta.InstanceUpdate{Instance: instance.ID, Target: meta.Offline, Reason: meta.ReasonShutdown}))
	case "expel": // as Governor.Expel does
		if why := expelRefusal(s.view(s.progress), instance.ID); why != "" {
			return fmt.Sprintf("%s: %s\n", protocol.StatusPreconditionFailed, why)
		}
		return said(s.apply(&meta.InstanceUpdate{
			Instance: instance.ID, Target: meta.Expelled, Reason: meta.ReasonExpel, Force: d.HasArg("force"),
		}))
	case "drain":
		return said(s.apply(&meta.InstanceDrain{Instance: instance.ID, Drained: !d.HasArg("undo")}))
	case "transfer":
		return said(s.apply(&meta.MasterTarget{Shard: uint64(number("shard", 0)), Instance: instance.ID}))
	case "weight":
		set, _ := s.machine.ReplicasetByName(d.CmdArgs[0].Key)
		return said(s.apply(&meta.WeightSet{Replicaset: set.ID, Weight: number("to", 1000), ByUser: true}))
	case "factor":
		return said(s.apply(&meta.TierReplicationFactor{Tier: uint8(number("tier", 0)), ReplicationFactor: number("to", 3),
			Wall: uint64(s.Wall().UnixMilli())}))
	case "shards":
		return said(s.apply(&meta.TierShards{Tier: uint8(number("tier", 0)), Shards: number("to", 1)}))
	case "restore": // NAME, or a part of it
		if err := s.restore(instance.ID, byte(number("chunks", 2))); err != nil {
			return err.Error() + "\n"
		}
	case "unreached": // NAME, by its raft address; from: it connects to others meanwhile
		s.unreached = map[uint64]Unreached{instance.ID: {Why: "i/o timeout", From: text("from")}}
	case "reached":
		s.unreached = nil
	case "crash": // of the governor
		s.progress = NewProgress()
	case "health": // NAME, as the instance sees it, alone if nobody confirms its map
		return s.health(instance.ID, d.HasArg("alone"))
	case "waits": // with what ends them
		return s.waits()
	case "plan": // and nobody carries it out
		return s.explain()
	case "round": // one plan, carried out
		return s.executePlan()
	case "converge":
		return s.converge(d.HasArg("quiet"))
	case "status":
		return s.status()
	default:
		d.Fatalf(t, "unknown command %s", d.Cmd)
	}
	return ""
}

func (s *clusterScript) explain() string {
	e := Explain(s.view(s.progress))
	var out strings.Builder
	for _, n := range e.Next {
		fmt.Fprintf(&out, "%s\n", n)
	}
	for _, w := range e.Waits {
		fmt.Fprintf(&out, "waits: %s: %s\n", w.What, w.Why)
	}
	if out.Len() == 0 {
		return "nothing to do\n"
	}
	return out.String()
}

func (s *clusterScript) waits() string {
	var out strings.Builder
	for _, w := range Explain(s.view(s.progress)).Waits {
		fmt.Fprintf(&out, "%s: %s: %s\n", w.Kind, w.What, w.Why)
	}
	return out.String()
}

// health is the assessment, in lines. Of the shards those are shown that do not work as they
// should.
func (s *clusterScript) health(self uint64, alone bool) string {
	h := Assess(Observation{
		View: s.view(s.progress), Self: self, Leader: s.groupLeader(meta.MetaShardID),
		Confirmed: !alone, Age: 7 * time.Second, Wall: s.Wall(),
	})
	var out strings.Builder
	fmt.Fprintf(&out, "%s as %s sees it", h.State, h.AnsweredBy)
	if !h.Confirmed {
		fmt.Fprintf(&out, ", confirmed %d ms ago", h.AgeMS)
	}
	out.WriteString("\n")
	for _, p := range h.Problems {
		fmt.Fprintf(&out, "  %s\n", p)
	}
	for _, u := range h.Unreachable {
		fmt.Fprintf(&out, "  unheard: %s %s %q for %d ms", u.Instance, u.State, u.Reason, u.ForMS)
		if u.Unreached != "" {
			fmt.Fprintf(&out, "; %s", u.Unreached)
		}
		out.WriteString("\n")
	}
	for _, l := range h.Losses {
		fmt.Fprintf(&out, "  %s\n", l)
	}
	if len(h.Drained) > 0 {
		fmt.Fprintf(&out, "  drained: %s\n", strings.Join(h.Drained, ", "))
	}
	group := func(what string, g *protocol.ClusterGroup) {
		fmt.Fprintf(&out, "%s: %d of %d heard, majority %v, leader %q, may lose %d of promised %d\n",
			what, g.Reachable, g.Voters, g.Majority, g.Leader, g.FaultTolerance, g.ConfiguredTolerance)
	}
	group("meta", &h.Meta)
	for i := range h.Shards {
		if g := &h.Shards[i]; !g.Majority || g.Leader == "" || g.FaultTolerance != g.ConfiguredTolerance {
			group(fmt.Sprintf("shard %d", g.Shard), g)
		}
	}
	for _, c := range h.Replicasets {
		fmt.Fprintf(&out, "%s: %d of %d copies, %d buckets", c.Replicaset, c.Copies, c.Configured, c.Buckets)
		if c.ForMS > 0 {
			fmt.Fprintf(&out, ", for %d ms", c.ForMS)
		}
		out.WriteString("\n")
	}
	return out.String()
}

// groupLeader is the instance that leads a group, 0 for none.
func (s *clusterScript) groupLeader(x uint64) uint64 {
	if !s.ensureLeader(x) {
		return 0
	}
	g := s.groups[x]
	return g.voters[g.leader]
}

// executePlan carries a plan out and says what it was.
func (s *clusterScript) executePlan() string {
	var out strings.Builder
	for _, step := range Plan(s.view(s.progress)) {
		fmt.Fprintf(&out, "%s", step)
		answer, err := s.gov.execute(context.Background(), &step)
		if err != nil {
			fmt.Fprintf(&out, ": %v", err)
		} else {
			s.progress.Done(&step, s.now, s.now, answer)
		}
		out.WriteString("\n")
	}
	return out.String()
}

// converge lets time pass and carries plans out until nothing is left to do, and says what was
// done.
func (s *clusterScript) converge(quiet bool) string {
	var out strings.Builder
	idle := 0
	for range 1000 {
		s.heartbeat()
		s.detectFailures()
		done := s.executePlan()
		if idle++; done != "" {
			idle = 0
		}
		if idle > 8 {
			break
		}
		if !quiet {
			out.WriteString(done)
		}
	}
	if idle <= 8 {
		return "it does not converge:\n" + s.explain()
	}
	for _, w := range Explain(s.view(s.progress)).Waits {
		fmt.Fprintf(&out, "waits: %s: %s\n", w.What, w.Why)
	}
	if steps := Plan(s.view(NewProgress())); len(steps) > 0 && s.machine.Tiers()[0].Bootstrapped {
		fmt.Fprintf(&out, "a new governor would go on: %v\n", steps)
	}
	return out.String()
}

func (s *clusterScript) instances() string {
	var out strings.Builder
	for _, i := range s.machine.Instances() {
		state := i.Current.String()
		if i.Current != i.Target {
			state += "?"
		}
		set, _ := s.machine.Replicaset(i.Replicaset)
		fmt.Fprintf(&out, "%s %s %s\n", i.Name, set.Name, state)
	}
	return out.String()
}

func (s *clusterScript) status() string {
	var out strings.Builder
	name := func(id uint64) string {
		i, _ := s.machine.Instance(id)
		return i.Name
	}
	out.WriteString(s.instances())
	for _, set := range s.machine.Replicasets() {
		t, _ := s.machine.Tier(set.Tier)
		fmt.Fprintf(&out, "%s %s weight %d", set.Name, set.Phase, set.Weight)
		for _, x := range s.machine.Shards() {
			if x.Replicaset != set.ID {
				continue
			}
			count := uint32(0)
			for _, run := range t.Runs {
				if run.Shard == x.ID {
					count += run.Count
				}
			}
			fmt.Fprintf(&out, "; shard %d %s on %s buckets %d", x.ID, replicas(&x, name), name(x.Master), count)
		}
		out.WriteString("\n")
	}
	x := s.machine.MetaShard()
	fmt.Fprintf(&out, "meta %s on %s\n", replicas(&x, name), name(x.Master))
	return out.String()
}

// replicas names the voters, and in brackets those without a vote.
func replicas(x *meta.Shard, name func(uint64) string) string {
	list := slices.Clone(x.Replicas)
	slices.SortFunc(list, func(a, b meta.Replica) int { return cmp.Compare(a.Instance, b.Instance) })
	var words []string
	for _, r := range list {
		switch {
		case r.Role == meta.RoleVoter:
			words = append(words, name(r.Instance))
		default:
			words = append(words, "("+name(r.Instance)+")")
		}
	}
	return strings.Join(words, " ")
}

// TestExpelGoesByTheMap: an instance that has just ended was heard a moment ago. The map has it
// Offline, and that counts.
func TestExpelGoesByTheMap(t *testing.T) {
	s := &clusterScript{progress: NewProgress()}
	datadriven.RunTestFromString(t, "bootstrap factor=2 shards=1 buckets=8\n----\n\njoin b\n----\n\n"+
		"join c\n----\n\njoin d\n----\n\nconverge quiet\n----\n", s.run)
	d, _ := s.machine.InstanceByName("d")
	before := s.view(s.progress)
	if why := expelRefusal(before, d.ID); why != "" {
		t.Fatalf("refused while all run: %s", why)
	}
	last := before.Health[d.ID]
	datadriven.RunTestFromString(t, "vanish d\n----\n\nshutdown d\n----\n\n"+
		"round\n----\nset current state instance=4 state=Offline(1)\n", s.run)
	v := s.view(s.progress)
	last.Heard = v.Now
	v.Health = maps.Clone(v.Health)
	v.Health[d.ID] = last
	if why := expelRefusal(v, d.ID); !strings.Contains(why, "shard 3 has no majority: 1 of 2 voters up; start d again") {
		t.Errorf("refused with %q", why)
	}
}

// TestCannotExpel: an instance that is gone can be replaced unless a group that it is in has lost its
// majority. A governor that was just elected has not heard everybody, and goes by the map.
func TestCannotExpel(t *testing.T) {
	s := &clusterScript{progress: NewProgress()}
	datadriven.RunTestFromString(t, "bootstrap factor=2 shards=1 buckets=8\n----\n\njoin b\n----\n\n"+
		"join c\n----\n\njoin d\n----\n\nconverge quiet\n----\n", s.run)
	a, _ := s.machine.InstanceByName("a")
	b, _ := s.machine.InstanceByName("b")
	v := s.view(s.progress)
	delete(v.Health, b.ID)
	if why := CannotExpel(Observation{View: v}, a.ID); why != "" {
		t.Errorf("cannot be expelled while b was not heard yet: %s", why)
	}
	datadriven.RunTestFromString(t, "kill b\n----\n", s.run)
	s.executePlan()
	const lost = "shard 2 has no majority: 1 of 2 voters up; start b again"
	if why := CannotExpel(Observation{View: s.view(s.progress)}, b.ID); !strings.Contains(why, lost) {
		t.Errorf("can be expelled without a majority of its shard: %q", why)
	}
}

// TestExpelUnknownHealth: a governor that is not told of heartbeats refuses no expel for want of
// them. The meta shard decides then.
func TestExpelUnknownHealth(t *testing.T) {
	s := &clusterScript{progress: NewProgress()}
	datadriven.RunTestFromString(t, "bootstrap factor=1 shards=1 buckets=8\n----\n\njoin b\n----\n\nconverge quiet\n----\n", s.run)
	v := s.view(s.progress)
	v.Health = nil
	for _, i := range s.machine.Instances() {
		if why := expelRefusal(v, i.ID); why != "" {
			t.Errorf("%s is refused: %s", i.Name, why)
		}
	}
}
