package governor

import (
	"slices"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
)

// Wait is a deviation from the configuration that no step mends now, and why.
type Wait struct {
	What string // "instance a to come online"
	Why  string // a sentence
	Kind WaitKind
}

// WaitKind is the cause that ends a wait.
type WaitKind uint8

const (
	Follows  WaitKind = iota // something else in the plan
	Underway                 // present instances that work on it, or time
	Outside                  // an absent instance, or an operator
)

// String is the kind as in protocol.ClusterPlan.
func (k WaitKind) String() string {
	return [...]string{protocol.WaitDependent, protocol.WaitInProgress, protocol.WaitExternal}[min(k, Outside)]
}

// Explanation is a plan for operators: the next steps, and the waits.
type Explanation struct {
	Next  []string
	Waits []Wait
}

// explainWithin is how long Explain waits for a new plan before it explains the last one.
const explainWithin = 500 * time.Millisecond

// Explain is this governor's plan for operators, made since the call. UNAVAILABLE where the meta
// shard does not lead: no plans are made there.
func (g *Governor) Explain() (Explanation, error) {
	asked := g.clock.Now()
	timer := time.NewTimer(explainWithin)
	defer timer.Stop()
	for late := false; ; {
		made := g.planned.wait()
		p := g.lastPlan.Load()
		switch {
		case !g.meta.Leading(), p == nil && late:
			return Explanation{}, protocol.Errorf(protocol.StatusUnavailable,
				"this instance does not lead the meta shard; ask the one that does")
		case p != nil && (late || p.Now >= asked):
			return p.explain(), nil
		}
		g.changes.wake()
		select {
		case <-made:
		case <-timer.C:
			late = true
		}
	}
}

// Explain is the next steps, and why something waits. It is pure, like Plan.
func Explain(v View) Explanation {
	return newPlan(v).explain()
}

func (p *planner) explain() Explanation {
	e := Explanation{Waits: slices.Clone(p.waits)}
	for _, s := range p.steps {
		s.At = 0
		if x := p.shardWithoutQuorum(&s); x != nil {
			e.Waits = append(e.Waits, Wait{What: s.String(), Why: p.noQuorumReason(x), Kind: Outside})
			continue
		}
		e.Next = append(e.Next, s.String())
	}
	e.Waits = append(e.Waits, p.deviations()...)
	return e
}

// Deviations are those that an instance can see without governing: by its map and the heartbeats
// that it receives.
func Deviations(v View) []Wait {
	v.Progress = NewProgress()
	p := &planner{View: v}
	if !v.State.Bootstrapped() {
		return nil
	}
	p.index()
	return p.deviations()
}

// NoQuorum returns a shard without a majority that changes of the cluster wait for, with the cause
// and the remedy, by the heartbeats that come here. Why is empty if every such shard has a
// majority. Changes of nodes wait for data shards of their tier too.
func (g *Governor) NoQuorum(ofNodes bool) (shard uint64, why string) {
	v := g.view()
	v.OfflineAfter = FreshLimit
	return lostQuorum(v, ofNodes)
}
