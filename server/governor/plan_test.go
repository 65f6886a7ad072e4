package governor

import (
	"flag"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard/meta"
)

func init() { flag.Var(flag.Lookup("rewrite").Value, "update", "rewrite the scripts") }

// TestScripts runs testdata/scripts: decisions in the meta state, plans, and steps carried out or
// lost.
func TestScripts(t *testing.T) {
	datadriven.Walk(t, "testdata/scripts", func(t *testing.T, path string) {
		s := &script{progress: NewProgress()}
		datadriven.RunTest(t, path, s.run)
	})
}

type script struct {
	*fakeState
	progress *Progress
	steps    []Step // the last plan
}

func (s *script) run(t *testing.T, d *datadriven.TestData) string {
	number := func(key string, otherwise uint64) uint64 {
		if d.HasArg(key) {
			d.ScanArgs(t, key, &otherwise)
		}
		return otherwise
	}
	switch d.Cmd {
	case "bootstrap":
		var shards []uint64
		for _, a := range d.CmdArgs {
			if a.Key == "shards" {
				for _, v := range a.Vals {
					id, _ := strconv.ParseUint(v, 10, 64)
					shards = append(shards, id)
				}
			}
		}
		s.fakeState = newFakeState(uint32(number("buckets", 8)), shards...)
		return s.plan()
	case "create":
		return s.decided(s.create(d.CmdArgs[0].Key, number("grace", protocol.DefaultGracePeriod)))
	case "alter":
		return s.decided(s.alter(d.CmdArgs[0].Key, number("grace", protocol.DefaultGracePeriod)))
	case "drop":
		return s.decided(s.drop(d.CmdArgs[0].Key))
	case "plan":
		return s.plan()
	case "do", "lose": // lose: the step is carried out, but its answer does not come back
		var out strings.Builder
		for _, step := range s.chosen(t, d) {
			answer, err := s.execute(&step)
			switch {
			case err != nil:
				fmt.Fprintf(&out, "%s: %v\n", step, err)
			case d.Cmd == "do":
				s.progress.Done(&step, s.now, s.now, answer)
			}
		}
		return out.String() + s.plan()
	case "finish": // carries plans out until only what must wait is left
		n := 0
		for ; n < 100; n++ {
			if s.plan(); !slices.ContainsFunc(s.steps, s.due) {
				break
			}
			for _, step := range s.steps {
				if !s.due(step) {
					continue
				}
				answer, err := s.execute(&step)
				if err != nil {
					return err.Error() + "\n"
				}
				s.progress.Done(&step, s.now, s.now, answer)
			}
		}
		return fmt.Sprintf("%d plans\n", n) + s.plan()
	case "crash":
		s.progress = NewProgress()
		return s.plan()
	case "advance":
		by, err := time.ParseDuration(d.CmdArgs[0].Key)
		if err != nil {
			d.Fatalf(t, "%v", err)
		}
		s.now += by
		return s.plan()
	case "lead":
		s.elect(number("shard", 0), number("epoch", 0))
		return s.plan()
	case "down", "up":
		s.shards[number("shard", 0)].down = d.Cmd == "down"
		return s.plan()
	case "remove": // the last of two shards, whose buckets go to the first
		return s.decided(s.remove(number("shard", 0), number("to", 0)))
	case "state":
		var out strings.Builder
		for n := range s.meta.Nodes("", "") {
			fmt.Fprintf(&out, "%d@%d %s %s grace=%d floor=%d\n", n.ID, n.Revision, n.Path, n.Phase, n.Config.GracePeriod, n.GraceFloor)
		}
		for _, id := range slices.Sorted(maps.Keys(s.shards)) {
			x, _ := s.meta.Shard(id)
			fmt.Fprintf(&out, "shard %d ready=%t: %s\n", id, x.Ready, s.shards[id])
		}
		return out.String()
	}
	d.Fatalf(t, "unknown command %s", d.Cmd)
	return ""
}

func (s *script) decided(res meta.Result) string {
	if res.Status != protocol.StatusOK {
		return fmt.Sprintf("%s: %s\n", res.Status, res.Message)
	}
	return s.plan()
}

func (s *script) due(step Step) bool { return step.At <= s.now }

func (s *script) plan() string {
	v := View{State: &s.meta.State, Progress: s.progress, Now: s.now}
	s.progress.Update(v)
	s.steps = Plan(v)
	if len(s.steps) == 0 {
		return "nothing to do\n"
	}
	var out strings.Builder
	for i, step := range s.steps {
		if step.At != 0 {
			step.At -= time.Hour // the script's clock starts there
		}
		fmt.Fprintf(&out, "%d. %s\n", i+1, step)
	}
	return out.String()
}

// chosen are the steps of the last plan with the numbers given, or all that are due.
func (s *script) chosen(t *testing.T, d *datadriven.TestData) []Step {
	var list []Step
	for _, a := range d.CmdArgs {
		if a.Key == "all" {
			return slices.DeleteFunc(slices.Clone(s.steps), func(step Step) bool { return !s.due(step) })
		}
		i, err := strconv.Atoi(a.Key)
		if err != nil || i < 1 || i > len(s.steps) {
			d.Fatalf(t, "there is no step %s", a.Key)
		}
		list = append(list, s.steps[i-1])
	}
	return list
}

// TestManyChangesOfATier: however many nodes of one tier wait for a shard that is down, those of
// another tier are changed.
func TestManyChangesOfATier(t *testing.T) {
	s := &clusterScript{progress: NewProgress()}
	datadriven.RunTestFromString(t, "bootstrap factor=1 shards=1 buckets=8 cold=6\n----\n\n"+
		"join b tier=cold\n----\n\nconverge quiet\n----\n", s.run)
	cold, _ := s.machine.TierByName("cold")
	var paths []string
	for n := range MaxPlannedNodes {
		paths = append(paths, fmt.Sprintf("/default/%d", n))
	}
	paths = append(paths, "/default/last")
	change := func(c func(path string) meta.Command) {
		for _, path := range paths {
			if res := s.apply(c(path)); res.Status != protocol.StatusOK {
				t.Fatal(res.Message)
			}
		}
	}
	planned := func(kind StepKind) bool {
		return slices.ContainsFunc(Plan(s.view(s.progress)), func(step Step) bool { return step.Kind == kind && step.Shard == 2 })
	}
	change(func(path string) meta.Command {
		c := &meta.NodeCreate{Path: path, Config: protocol.DefaultNodeConfig(), Parent: protocol.DefaultNodeConfig()}
		if path != "/default/last" {
			c.Tier = cold.ID
		}
		return c
	})
	if !planned(PutNode) {
		t.Error("the new node of the other tier is not planned")
	}
	s.converge(true)
	change(func(path string) meta.Command {
		n, _ := s.machine.NodeAt(path)
		c := &meta.NodeAlter{Path: path, Node: n.ID, Revision: n.Revision, Config: n.Config}
		c.Config.GracePeriod--
		return c
	})
	s.executePlan() // the shards get them
	s.executePlan() // and they are committed, with the old grace period
	if !planned(ReadLeaderEpoch) {
		t.Error("the lowered grace period in the other tier is not planned")
	}
}
