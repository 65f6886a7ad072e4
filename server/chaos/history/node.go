package history

import (
	"fmt"

	"github.com/anishathalye/porcupine"
)

// node is the state of a path in the catalogue. Ids only grow.
type node struct {
	exists bool
	id     uint64 // 0: not known
	last   uint64 // the highest that is known
}

func (n node) next(op *Op) []any {
	made := node{true, op.Token, max(n.last, op.Token)}
	gone := node{last: n.last}
	switch op.Kind {
	case CreateNode:
		switch {
		case op.Result == OK && !n.exists && op.Token > n.last:
			return []any{made}
		case op.Result == Exists && n.exists:
			return []any{n}
		case op.Result == Unknown && !n.exists:
			return []any{n, made}
		case op.Result == Unknown:
			return []any{n}
		}
	case DropNode:
		switch {
		case op.Result == OK:
			// The client repeats the drop when its connection breaks, and takes it for its own when
			// the node is gone.
			return []any{gone}
		case op.Result == NotFound && !n.exists:
			return []any{n}
		case op.Result == Unknown && n.exists:
			return []any{n, gone}
		case op.Result == Unknown:
			return []any{n}
		}
	}
	return nil
}

// possibleRepeats are what a call may have done besides what it was told: the client asks again
// when a connection is lost, and if somebody undid the first doing meanwhile, the second does it
// again.
func (o *Op) possibleRepeats() []*Op {
	if o.Result != OK {
		return nil
	}
	first := *o
	first.Result, first.Token = Unknown, 0
	return []*Op{&first}
}

var nodeModel = porcupine.NondeterministicModel{
	Init: func() []any { return []any{node{}} },
	Step: func(state, input, _ any) []any { return state.(node).next(input.(*Op)) },
	DescribeOperation: func(input, _ any) string {
		op := input.(*Op)
		return fmt.Sprintf("%s: %s %d", op.Kind, op.Result, op.Token)
	},
	DescribeState: func(a any) string {
		if n := a.(node); n.exists {
			return fmt.Sprintf("node %d", n.id)
		}
		return "none"
	},
}
