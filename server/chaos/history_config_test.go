package chaos

import (
	"fmt"

	"github.com/anishathalye/porcupine"
)

// configState is the state of a configuration: data with a version, which rises with each change; 0: it
// was never set. Each write must have bytes of its own: writing the same bytes changes nothing.
type configState struct {
	version uint64
	data    string
	higher  bool // the version is above that: the outcome of the write is not known
}

// at returns the state with this version, if it may have that.
func (c configState) at(version uint64) (configState, bool) {
	if c.higher {
		return configState{version: version, data: c.data}, version > c.version
	}
	return c, version == c.version
}

func (c configState) set(op *historyOp) (n configState, ok bool) {
	if op.Result == resultRefused {
		return c, op.Guarded && (c.higher || op.Want != c.version)
	}
	if n, ok = c, true; op.Guarded {
		n, ok = c.at(op.Want)
	}
	if op.Result == resultOK {
		return configState{version: op.Version, data: op.Data}, ok && op.Version > n.version
	}
	return configState{version: n.version, data: op.Data, higher: true}, ok // unknown: if it took effect
}

func (c configState) next(op *historyOp) []any {
	if op.Kind == callGet {
		n, ok := c.at(op.Version)
		switch {
		case op.Result == resultUnknown:
			return []any{c}
		case op.Result == resultNotFound && n == configState{} && ok,
			op.Result == resultOK && op.Version != 0 && ok && op.Data == c.data:
			return []any{n}
		}
		return nil
	}
	n, ok := c.set(op)
	switch {
	case op.Result == resultUnknown && ok:
		return []any{c, n}
	case op.Result == resultUnknown:
		return []any{c}
	case ok:
		return []any{n}
	}
	return nil
}

var configModel = porcupine.NondeterministicModel{
	Init:              func() []any { return []any{configState{}} },
	Step:              func(state, input, _ any) []any { return state.(configState).next(input.(*historyOp)) },
	DescribeOperation: func(input, _ any) string { return describeConfig(input.(*historyOp)) },
	DescribeState: func(a any) string {
		c := a.(configState)
		return fmt.Sprintf("version %d (or above: %t): %s", c.version, c.higher, c.data)
	},
}

func describeConfig(op *historyOp) string {
	text := string(op.Kind)
	if op.Kind == callSet {
		text += " " + op.Data
		if op.Guarded {
			text += fmt.Sprintf(" if version %d", op.Want)
		}
	}
	switch {
	case op.Result != resultOK:
		return text + ": " + string(op.Result)
	case op.Kind == callGet:
		return fmt.Sprintf("%s: version %d, %s", text, op.Version, op.Data)
	}
	return fmt.Sprintf("%s: version %d", text, op.Version)
}

// checkRelaxedReads checks relaxed reads. A client never sees them go back, nor behind its own
// acknowledged writes. What they show was written under that version, if that is known.
func checkRelaxedReads(ops []*historyOp) error {
	written := map[uint64]string{}
	for _, op := range ops {
		if op.Result == resultOK && (op.Kind == callSet || op.Kind == callGet) {
			written[op.Version] = op.Data
		}
	}
	seen := versions{}
	for _, op := range ops { // by Call
		switch {
		case op.Result == resultOK && (op.Kind == callSet || op.Kind == callGet):
			seen.add(op) // what the client wrote itself, or read strict, counts as seen
			continue
		case op.Kind != callRelaxedGet || op.Result != resultOK && op.Result != resultNotFound:
			continue
		}
		// Of two reads that overlap either may be the older one.
		if last := seen.before(op); last != nil && op.Version < last.Version {
			return fmt.Errorf("%s: client %d knew version %d by a %s, and then read version %d relaxed",
				op.Name, op.Process, last.Version, last.Kind, op.Version)
		}
		if data, ok := written[op.Version]; ok && op.Version != 0 && data != op.Data {
			return fmt.Errorf("%s: client %d read %q as version %d, which is %q", op.Name, op.Process, op.Data, op.Version, data)
		}
		seen.add(op)
	}
	return nil
}

// versions is what each client knew of a configuration.
type versions map[int][]*historyOp

func (v versions) add(op *historyOp) { v[op.Process] = append(v[op.Process], op) }

// before is the highest version that the client of a call knew before the call began.
func (v versions) before(op *historyOp) (last *historyOp) {
	for _, o := range v[op.Process] {
		if o.Return < op.Call && (last == nil || o.Version > last.Version) {
			last = o
		}
	}
	return last
}
