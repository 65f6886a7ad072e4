package process

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/signalbox-dev/signalbox/protocol"
)

func (w *simulation) drained() bool {
	if w.p.Phase() == protocol.PhaseIdle {
		return !slices.ContainsFunc(w.agents, func(a *agent) bool { return !a.dead })
	}
	if w.p.Phase() != protocol.PhaseCompleted {
		return false
	}
	for _, a := range w.agents {
		if !a.dead && (a.ended || a.agreedEpoch != w.p.Epoch() || a.open) {
			return false
		}
	}
	return true
}

// verify is what must hold at the end of every history.
func (w *simulation) verify() {
	for _, a := range w.agents {
		open := 0
		if a.open {
			open = 1
		}
		if a.prepares != a.cancels+a.completes+open || open == 1 && !a.dead {
			w.fatal("agent %d: %d prepares, %d cancels, %d completes", a.session, a.prepares, a.cancels, a.completes)
		}
		if !a.dead && a.agreed != string(w.p.round.result) {
			w.fatal("agent %d holds %q, the others %q", a.session, a.agreed, w.p.round.result)
		}
	}
	for e := range w.completed {
		if w.cancelled[e] {
			w.fatal("epoch %d was completed by some and cancelled by others", e)
		}
	}
	for k, n := range w.executed {
		if n > 1 {
			w.fatal("request %v was executed %d times", k, n)
		}
	}
	if t := w.p.Counters(); t.Completed > t.Changes+w.forced {
		w.fatal("%d rounds completed for %d changes and %d forced", t.Completed, t.Changes, w.forced)
	}
}

// checkReplay applies the log to another process, with restores at other places, and compares.
func (w *simulation) checkReplay(o protocol.ProcessOptions) {
	p, _ := New(Now{}, 0, o)
	var trace bytes.Buffer
	var out Out
	for i, one := range w.log {
		out.Reset()
		one(p, &out)
		if i > 0 {
			fmt.Fprintf(&trace, "%+v", out)
		}
		if i%97 == 5 {
			q, err := Decode(p.Append(nil))
			if err != nil {
				w.fatal("%v", err)
			}
			p = q
		}
	}
	if p.Digest() != w.p.Digest() || !bytes.Equal(trace.Bytes(), w.trace.Bytes()) {
		w.fatal("a replay of the log differs")
	}
}
