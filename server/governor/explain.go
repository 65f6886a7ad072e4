package governor

import "github.com/signalbox-dev/signalbox/protocol"

// Wait is something that is to be done and is not done now, and why, for people.
type Wait struct {
	What string // "instance a to come online"
	Why  string // a sentence
}

// Explanation is a plan for people: what is done next, and what waits for something.
type Explanation struct {
	Next  []string
	Waits []Wait
}

// Explain is this governor's last plan for people. UNAVAILABLE where the meta shard does not lead: no plans are made there.
func (g *Governor) Explain() (Explanation, error) {
	p := g.last.Load()
	if p == nil || !g.meta.Leading() {
		return Explanation{}, protocol.Errorf(protocol.StatusUnavailable, "this instance does not lead the meta shard; ask the one that does")
	}
	return p.explain(), nil
}

// Explain says what comes next and why something waits. It is a pure function, like Plan.
func Explain(v View) Explanation {
	return newPlan(v).explain()
}

func (p *planner) explain() Explanation {
	var e Explanation
	for _, s := range p.steps {
		s.At = 0
		e.Next = append(e.Next, s.String())
	}
	e.Waits = p.waits
	return e
}
