package history

import (
	"fmt"

	"github.com/anishathalye/porcupine"
)

// config is the state of a configuration: data with a version, which rises with each change; 0: it
// was never set. Each write must have bytes of its own: writing the same bytes changes nothing.
type config struct {
	version uint64
	data    string
	higher  bool // the version is above that: the outcome of the write is not known
}

// at returns the state with this version, if it may have that.
func (c config) at(version uint64) (config, bool) {
	if c.higher {
		return config{version: version, data: c.data}, version > c.version
	}
	return c, version == c.version
}

func (c config) set(op *Op) (n config, ok bool) {
	if op.Result == Refused {
		return c, op.Guarded && (c.higher || op.Want != c.version)
	}
	if n, ok = c, true; op.Guarded {
		n, ok = c.at(op.Want)
	}
	if op.Result == OK {
		return config{version: op.Version, data: op.Data}, ok && op.Version > n.version
	}
	return config{version: n.version, data: op.Data, higher: true}, ok // unknown: if it took effect
}

func (c config) next(op *Op) []any {
	if op.Kind == Get {
		n, ok := c.at(op.Version)
		switch {
		case op.Result == Unknown:
			return []any{c}
		case op.Result == NotFound && n == config{} && ok,
			op.Result == OK && op.Version != 0 && ok && op.Data == c.data:
			return []any{n}
		}
		return nil
	}
	n, ok := c.set(op)
	switch {
	case op.Result == Unknown && ok:
		return []any{c, n}
	case op.Result == Unknown:
		return []any{c}
	case ok:
		return []any{n}
	}
	return nil
}

var configModel = porcupine.NondeterministicModel{
	Init:              func() []any { return []any{config{}} },
	Step:              func(state, input, _ any) []any { return state.(config).next(input.(*Op)) },
	DescribeOperation: func(input, _ any) string { return describeConfig(input.(*Op)) },
	DescribeState: func(a any) string {
		c := a.(config)
		return fmt.Sprintf("version %d (or above: %t): %s", c.version, c.higher, c.data)
	},
}

func describeConfig(op *Op) string {
	text := string(op.Kind)
	if op.Kind == Set {
		text += " " + op.Data
		if op.Guarded {
			text += fmt.Sprintf(" if version %d", op.Want)
		}
	}
	switch {
	case op.Result != OK:
		return text + ": " + string(op.Result)
	case op.Kind == Get:
		return fmt.Sprintf("%s: version %d, %s", text, op.Version, op.Data)
	}
	return fmt.Sprintf("%s: version %d", text, op.Version)
}

// checkRelaxedReads checks relaxed reads. A client never sees them go back, nor behind its own
// acknowledged writes. What they show was written under that version, if that is known.
func checkRelaxedReads(ops []*Op) error {
	written := map[uint64]string{}
	for _, op := range ops {
		if op.Result == OK && (op.Kind == Set || op.Kind == Get) {
			written[op.Version] = op.Data
		}
	}
	seen := versions{}
	for _, op := range ops { // by Call
		switch {
		case op.Result == OK && (op.Kind == Set || op.Kind == Get):
			seen.add(op) // what the client wrote itself, or read strict, counts as seen
			continue
		case op.Kind != RelaxedGet || op.Result != OK && op.Result != NotFound:
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
type versions map[int][]*Op

func (v versions) add(op *Op) { v[op.Process] = append(v[op.Process], op) }

// before is the highest version that the client of a call knew before the call began.
func (v versions) before(op *Op) (last *Op) {
	for _, o := range v[op.Process] {
		if o.Return < op.Call && (last == nil || o.Version > last.Version) {
			last = o
		}
	}
	return last
}
