package chaos

import (
	"fmt"

	"github.com/anishathalye/porcupine"
)

// nodeState is the state of a path in the catalogue. Ids only grow.
type nodeState struct {
	exists bool
	id     uint64 // 0: not known
	last   uint64 // the highest that is known
}

func (n nodeState) next(op *historyOp) []any {
	made := nodeState{true, op.Token, max(n.last, op.Token)}
	gone := nodeState{last: n.last}
	switch op.Kind {
	case callCreateNode:
		switch {
		case op.Result == resultOK && !n.exists && op.Token > n.last:
			return []any{made}
		case op.Result == resultExists && n.exists:
			return []any{n}
		case op.Result == resultUnknown && !n.exists:
			return []any{n, made}
		case op.Result == resultUnknown:
			return []any{n}
		}
	case callDropNode:
		switch {
		case op.Result == resultOK:
			// The client repeats the drop when its connection breaks, and takes it for its own when
			// the node is gone.
			return []any{gone}
		case op.Result == resultNotFound && !n.exists:
			return []any{n}
		case op.Result == resultUnknown && n.exists:
			return []any{n, gone}
		case op.Result == resultUnknown:
			return []any{n}
		}
	}
	return nil
}

// possibleRepeats are what a call may have done besides what it was told: the client asks again
// when a connection is lost, and if somebody undid the first doing meanwhile, the second does it
// again.
func (o *historyOp) possibleRepeats() []*historyOp {
	if o.Result != resultOK {
		return nil
	}
	first := *o
	first.Result, first.Token = resultUnknown, 0
	return []*historyOp{&first}
}

var nodeModel = porcupine.NondeterministicModel{
	Init: func() []any { return []any{nodeState{}} },
	Step: func(state, input, _ any) []any { return state.(nodeState).next(input.(*historyOp)) },
	DescribeOperation: func(input, _ any) string {
		op := input.(*historyOp)
		return fmt.Sprintf("%s: %s %d", op.Kind, op.Result, op.Token)
	},
	DescribeState: func(a any) string {
		if n := a.(nodeState); n.exists {
			return fmt.Sprintf("node %d", n.id)
		}
		return "none"
	},
}
