package history

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

// Options of Check.
type Options struct {
	Limit    time.Duration // limit of the search over one name, default a minute; a search that is cut short is a finding
	Pictures string        // folder for the picture of each name whose calls fit no order; empty: no pictures
}

// Finding is what is wrong about a name.
type Finding struct {
	Name    string
	What    string
	Picture string // file, if there is one
	Ops     []Op   // the name's history
}

// Summary is what was checked.
type Summary struct {
	Names, Ops, Unknown int
	ByKind              map[Kind]int
	ByResult            map[Result]int
	Longest             time.Duration // of a call
	LongestCall         Op
	MaxPerName          int
	Findings            []Finding
}

// Check checks a history, one name after the other.
func Check(ops []Op, o Options) Summary {
	if o.Limit <= 0 {
		o.Limit = time.Minute
	}
	s := Summary{ByKind: map[Kind]int{}, ByResult: map[Result]int{}}
	byName := map[string][]*Op{}
	for i := range ops {
		op := &ops[i]
		byName[op.Name] = append(byName[op.Name], op)
		s.Ops++
		s.ByKind[op.Kind]++
		if op.Kind == Ended || op.Kind == Believed || op.Kind == Fenced {
			continue
		}
		s.ByResult[op.Result]++
		if op.Result == Unknown {
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
		slices.SortStableFunc(list, func(a, b *Op) int { return cmp.Compare(a.Call, b.Call) })
		what, picture := checkName(name, list, o)
		if what == "" {
			continue
		}
		f := Finding{Name: name, What: what, Picture: picture}
		for _, op := range list {
			f.Ops = append(f.Ops, *op)
		}
		s.Findings = append(s.Findings, f)
	}
	return s
}

// checkName says what is wrong about the calls on a name.
func checkName(name string, list []*Op, o Options) (what, picture string) {
	for _, f := range []func([]*Op) error{checkBeliefs, checkFences, checkRelaxedReads} {
		if err := f(list); err != nil {
			return err.Error(), ""
		}
	}
	nd, history := semaphoreModel, []porcupine.Operation(nil)
	for _, op := range list {
		switch op.Kind {
		case Believed, Fenced, RelaxedGet:
			continue
		case Set, Get:
			nd = configModel
		case CreateNode, DropNode:
			nd = nodeModel
			for _, first := range op.possibleRepeats() {
				history = append(history, porcupine.Operation{ClientId: op.Lane, Input: first, Call: op.Call, Return: op.Return})
			}
		default:
			history = append(history, steps(op)...)
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
