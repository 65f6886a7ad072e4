package chaos

import (
	"cmp"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"
)

// historyOptions are the options of checkHistory.
type historyOptions struct {
	Limit    time.Duration // limit of the search over one name, default a minute; a search that is cut short is a finding
	Pictures string        // folder for the picture of each name whose calls fit no order; empty: no pictures
}

// historyFinding is what is wrong about a name.
type historyFinding struct {
	Name    string
	What    string
	Picture string      // file, if there is one
	Ops     []historyOp // the name's history
}

// historySummary is what was checked.
type historySummary struct {
	Names, Ops, Unknown int
	ByKind              map[callKind]int
	ByResult            map[callResult]int
	Longest             time.Duration // of a call
	LongestCall         historyOp
	MaxPerName          int
	Findings            []historyFinding
}

// checkHistory checks a history, one name after the other.
func checkHistory(ops []historyOp, o historyOptions) historySummary {
	if o.Limit <= 0 {
		o.Limit = time.Minute
	}
	s := historySummary{ByKind: map[callKind]int{}, ByResult: map[callResult]int{}}
	byName := map[string][]*historyOp{}
	for i := range ops {
		op := &ops[i]
		byName[op.Name] = append(byName[op.Name], op)
		s.Ops++
		s.ByKind[op.Kind]++
		if op.Kind == callEnded || op.Kind == callBelieved || op.Kind == callFenced {
			continue
		}
		s.ByResult[op.Result]++
		if op.Result == resultUnknown {
			s.Unknown++
		} else if op.took() > s.Longest {
			s.Longest, s.LongestCall = op.took(), *op
		}
	}
	names := slices.Sorted(maps.Keys(byName))
	s.Names = len(names)
	for _, name := range names {
		list := byName[name]
		s.MaxPerName = max(s.MaxPerName, len(list))
		slices.SortStableFunc(list, func(a, b *historyOp) int { return cmp.Compare(a.Call, b.Call) })
		what, picture := checkName(name, list, o)
		if what == "" {
			continue
		}
		f := historyFinding{Name: name, What: what, Picture: picture}
		for _, op := range list {
			f.Ops = append(f.Ops, *op)
		}
		s.Findings = append(s.Findings, f)
	}
	return s
}

// checkName says what is wrong about the calls on a name.
func checkName(name string, list []*historyOp, o historyOptions) (what, picture string) {
	for _, f := range []func([]*historyOp) error{checkBeliefs, checkFences, checkRelaxedReads} {
		if err := f(list); err != nil {
			return err.Error(), ""
		}
	}
	nd, history := semaphoreModel, []porcupine.Operation(nil)
	for _, op := range list {
		switch op.Kind {
		case callBelieved, callFenced, callRelaxedGet:
			continue
		case callSet, callGet:
			nd = configModel
		case callCreateNode, callDropNode:
			nd = nodeModel
			for _, first := range op.possibleRepeats() {
				history = append(history, porcupine.Operation{ClientId: op.Lane, Input: first, Call: op.Call, Return: op.Return})
			}
		default:
			history = append(history, stepsOf(op)...)
			continue
		}
		history = append(history, porcupine.Operation{ClientId: op.Lane, Input: op, Call: op.Call, Return: op.Return})
	}
	if len(history) == 0 {
		return "", ""
	}
	model := nd.ToModel()
	result, info := porcupine.CheckOperationsVerbose(model, history, o.Limit)
	switch result {
	case porcupine.Ok:
		return "", ""
	case porcupine.Illegal:
		what = fmt.Sprintf("%s: its %d calls fit no order that the model allows", name, len(list))
	default:
		what = fmt.Sprintf("%s: no order was found for its %d calls within %s, "+
			"and it was not shown that there is none: fewer calls per name are needed", name, len(list), o.Limit)
	}
	if o.Pictures != "" {
		picture = filepath.Join(o.Pictures, strings.NewReplacer("/", "_", " ", "_").Replace(name)+".html")
		if err := porcupine.VisualizePath(model, info, picture); err != nil {
			what += "; its picture was not written: " + err.Error()
			picture = ""
		}
	}
	return what, picture
}
