package governor

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server/servertest/form"
	"github.com/signalbox-dev/signalbox/shard/meta"
)

// versionModel is what the cluster's version has to be: that of its oldest instance, unless that is
// held, and never lower than before. An instance counts from its join until it is expelled.
type versionModel struct {
	cluster uint32            // minor version
	held    bool              // the cluster's version stays
	running map[uint64]uint32 // minor version by instance
	leaving map[uint64]bool   // it is to be expelled, and counts until it is
}

// suits reports whether an instance may join, or start, with a version.
func (v *versionModel) suits(self uint64, minor uint32) bool {
	seen := map[uint32]bool{minor: true}
	for id, other := range v.running {
		if id != self {
			seen[other] = true
		}
	}
	return minor >= v.cluster && minor <= v.cluster+1 && len(seen) <= 2
}

// raise follows from the instances that there are.
func (v *versionModel) raise() {
	oldest := ^uint32(0)
	for _, minor := range v.running {
		oldest = min(oldest, minor)
	}
	if !v.held {
		v.cluster = max(v.cluster, oldest)
	}
}

// versionRun is a cluster's map, and the part of the governor that raises its version.
type versionRun struct {
	t      *testing.T
	m      *meta.Machine
	op     uint64
	v      versionModel
	counts map[string]int
}

func (r *versionRun) apply(c meta.Command) meta.Result {
	r.op++
	res, err := meta.DecodeResult(r.m.Apply(r.op, meta.AppendCommand(nil, meta.OpID{1, byte(r.op >> 8), byte(r.op)}, c)))
	if err != nil {
		r.t.Fatal(err)
	}
	return res
}

// must compares the answer to a command with what the model says.
func (r *versionRun) must(what string, res meta.Result, ok bool) {
	r.t.Helper()
	if (res.Status == protocol.StatusOK) != ok {
		r.t.Fatalf("%s is answered with %s %q; the model says %t: %+v", what, res.Status, res.Message, ok, r.v)
	}
	if ok {
		r.counts[what]++
	}
}

func (r *versionRun) step(rng *rand.Rand) {
	minor := r.v.cluster + uint32(rng.IntN(4)) - 1
	some := func() uint64 {
		list := r.m.Instances()
		return list[rng.IntN(len(list))].ID
	}
	id := some()
	_, counts := r.v.running[id]
	switch rng.IntN(7) {
	case 0:
		uuid := fmt.Sprint("u", r.op)
		ok := r.v.suits(0, minor) && len(r.v.running) < 5
		if len(r.v.running) >= 5 {
			return
		}
		res := r.apply(&meta.Join{
			UUID: uuid, Address: uuid, RaftAddress: uuid, Version: meta.Version{Major: 1, Minor: minor},
		})
		if r.must("join", res, ok); ok {
			r.v.running[res.Instance] = minor
		}
	case 1, 2, 3:
		i, _ := r.m.Instance(id)
		res := r.apply(&meta.InstanceUpdate{Instance: id, Target: meta.Online, Start: true, Reason: meta.ReasonWakeup,
			Address: i.Address, RaftAddress: i.RaftAddress, Version: meta.Version{Major: 1, Minor: minor}})
		ok := counts && r.v.suits(id, minor)
		if r.must("restart", res, ok); ok {
			r.v.running[id] = minor
			delete(r.v.leaving, id)
		}
	case 4:
		if id == 1 || !counts { // the first one votes in the meta shard
			return
		}
		res := r.apply(&meta.InstanceUpdate{Instance: id, Target: meta.Expelled, Force: true, Reason: meta.ReasonExpel})
		r.must("expel", res, true)
		r.v.leaving[id] = true
	case 5:
		if !r.v.leaving[id] {
			return
		}
		i, _ := r.m.Instance(id)
		r.must("expelled", r.apply(&meta.InstanceCurrent{Instance: id, State: i.Target}), true)
		delete(r.v.running, id)
		delete(r.v.leaving, id)
	case 6:
		if rng.IntN(3) > 0 {
			return
		}
		r.v.held = !r.v.held
		r.must("hold", r.apply(&meta.UpgradeHold{Held: r.v.held}), true)
	}
}

// govern has the governor do what it plans about the version.
func (r *versionRun) govern() {
	for range 3 {
		p := &planner{View: View{State: &r.m.State}}
		planVersion(p)
		for _, s := range p.steps {
			r.must("raise", r.apply(&meta.ClusterVersion{Version: s.Version}), true)
		}
	}
}

// tooEarly proposes each version that the cluster may not have yet.
func (r *versionRun) tooEarly() {
	for minor := r.v.cluster + 1; minor < r.v.cluster+3; minor++ {
		res := r.apply(&meta.ClusterVersion{Version: meta.Version{Major: 1, Minor: minor}})
		if res.Status != protocol.StatusAborted {
			r.t.Fatalf("version 1.%d of the cluster is answered with %s: %+v", minor, res.Status, r.v)
		}
	}
}

// TestVersionModel: whatever instances join, restart, and are expelled, in whatever versions, the
// cluster's version is the model's after each step, and so is what may join or start.
func TestVersionModel(t *testing.T) {
	counts := map[string]int{}
	for seed := range uint64(form.Of(200, 20_000)) {
		rng := rand.New(rand.NewPCG(seed, 0))
		r := &versionRun{t: t, m: meta.New(), counts: counts, v: versionModel{
			cluster: 2, running: map[uint64]uint32{1: 2}, leaving: map[uint64]bool{},
		}}
		r.must("bootstrap", r.apply(&meta.Bootstrap{
			Cluster: "c", Instance: 1, UUID: "u0", Name: "one", Address: "u0", RaftAddress: "u0", Tier: "first", CanVote: true,
			Buckets: 8, ReplicationFactor: 9, Shards: []uint64{2}, Version: meta.Version{Major: 1, Minor: 2},
			NodeConfig: protocol.DefaultNodeConfig(),
		}), true)
		for range 80 {
			r.step(rng)
			r.v.raise()
			r.govern()
			if got := r.m.ClusterVersion(); got != (meta.Version{Major: 1, Minor: r.v.cluster}) {
				t.Fatalf("seed %d: the cluster's version is %s; the model says 1.%d: %+v", seed, got, r.v.cluster, r.v)
			}
			r.tooEarly()
		}
	}
	t.Log(counts)
	for _, what := range []string{"join", "restart", "expel", "expelled", "hold", "raise"} {
		if counts[what] < 100 {
			t.Errorf("%s happened %d times: the runs do not try it", what, counts[what])
		}
	}
}
