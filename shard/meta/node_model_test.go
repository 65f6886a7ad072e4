package meta

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/signalbox-dev/signalbox/protocol"
)

// model is the node catalogue written as plainly as the rules are: one map, and loops over it.
type model struct {
	nodes map[string]*modelNode
	last  uint64
	// tokens is what the tokens of new nodes are above; gone counts the nodes that are.
	tokens uint64
	gone   int
}

type modelNode struct {
	id, revision, grace, floor, tokens uint64
	phase                              NodePhase
}

func (m *model) create(path string, grace uint64) protocol.Status {
	if n := m.nodes[path]; n != nil {
		if n.phase == Dropping || n.phase == Creating {
			return protocol.StatusAborted
		}
		return protocol.StatusAlreadyExists
	}
	parts := strings.Split(path[1:], "/")
	var missing []string
	for i := 1; i < len(parts); i++ {
		up := "/" + strings.Join(parts[:i], "/")
		switch n := m.nodes[up]; {
		case n == nil:
			missing = append(missing, up)
		case n.phase == Dropping:
			return protocol.StatusAborted
		}
	}
	for _, up := range missing {
		m.last++
		m.nodes[up] = &modelNode{id: m.last, revision: 1, grace: protocol.DefaultGracePeriod, phase: Creating, tokens: m.tokens}
	}
	m.last++
	m.nodes[path] = &modelNode{id: m.last, revision: 1, grace: grace, phase: Creating, tokens: m.tokens}
	return protocol.StatusOK
}

func (m *model) target(path string, id uint64) (*modelNode, protocol.Status) {
	n := m.nodes[path]
	switch {
	case n == nil || n.phase == Creating || n.phase == Dropping:
		return nil, protocol.StatusNotFound
	case n.id != id || n.phase == Altering:
		return nil, protocol.StatusAborted
	}
	return n, protocol.StatusOK
}

func (m *model) alter(path string, id, revision, grace uint64) protocol.Status {
	n, st := m.target(path, id)
	if st != protocol.StatusOK {
		return st
	}
	if n.revision != revision {
		return protocol.StatusAborted
	}
	n.floor = max(n.floor, n.grace)
	if grace >= n.floor {
		n.floor = 0
	}
	n.grace, n.phase = grace, Altering
	n.revision++
	return protocol.StatusOK
}

func (m *model) drop(path string, id uint64) protocol.Status {
	n, st := m.target(path, id)
	if st != protocol.StatusOK {
		return st
	}
	first := "" // below it, in order of path: it says why not
	for p, below := range m.nodes {
		if strings.HasPrefix(p, path+"/") && (first == "" || p < first) {
			first = p
			st = protocol.StatusPreconditionFailed
			if below.phase == Dropping {
				st = protocol.StatusAborted
			}
		}
	}
	if st == protocol.StatusOK {
		n.phase, n.floor = Dropping, 0
		n.revision++
	}
	return st
}

func (m *model) commit(id, revision uint64) {
	for path, n := range m.nodes {
		if n.id != id || n.revision != revision {
			continue
		}
		switch up := m.nodes[path[:strings.LastIndex(path, "/")]]; {
		case n.phase == Dropping:
			delete(m.nodes, path)
			m.gone++
		case up == nil || up.phase != Creating:
			n.phase = Ready
		}
	}
}

func (m *model) clear(id, revision uint64) {
	for _, n := range m.nodes {
		if n.id == id && n.revision == revision && n.phase == Ready {
			n.floor = 0
		}
	}
}

func (m *model) String() string {
	var out strings.Builder
	for _, path := range slices.Sorted(maps.Keys(m.nodes)) {
		n := m.nodes[path]
		fmt.Fprintf(&out, "%d@%d %s %s %d %d above %d\n", n.id, n.revision, path, n.phase, n.grace, n.floor, n.tokens)
	}
	return out.String()
}

func nodeTable(s *State) string {
	var out strings.Builder
	for n := range s.Nodes("", "") {
		fmt.Fprintf(&out, "%d@%d %s %s %d %d above %d\n", n.ID, n.Revision,
			n.Path, n.Phase, n.Config.GracePeriod, n.GraceFloor, n.TokenFloor)
	}
	return out.String()
}

// TestNodesMatchModel applies random commands to the model, to a machine, and to a machine that is
// saved and restored now and then; the three agree after each, and what was saved on the way is
// unharmed by what came later.
func TestNodesMatchModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := &model{nodes: map[string]*modelNode{}}
		a, b := New(), New()
		config := protocol.DefaultNodeConfig()
		var entry []byte
		index := uint64(0)
		apply := func(c Command, op OpID) Result {
			index++
			entry = AppendCommand(entry[:0], op, c)
			got := a.Apply(index, entry)
			if !bytes.Equal(got, b.Apply(index, entry)) {
				t.Fatalf("the restored machine answers %#v otherwise", c)
			}
			res, err := DecodeResult(got)
			if err != nil {
				t.Fatal(err)
			}
			return res
		}
		apply(&Bootstrap{Cluster: "c", Instance: 1, Tier: "default", CanVote: true,
			Buckets: 8, Shards: []uint64{2, 3}, NodeConfig: config}, OpID{})
		want.nodes[DefaultPath] = &modelNode{id: 1, revision: 1, grace: config.GracePeriod, phase: Creating}
		want.last = 1

		paths := []string{DefaultPath, "/a", "/a/a", "/a/b", "/a/b/c", "/ab", "/b/c/d"}
		type saved struct {
			snapshot *Snapshot
			digest   uint64
		}
		var kept []saved
		answers := map[byte]*Result{}
		for step := range rapid.IntRange(1, 60).Draw(t, "steps") {
			path := rapid.SampledFrom(paths).Draw(t, "path")
			grace := rapid.Uint64Range(2, 9).Draw(t, "grace") * 1000
			n, _ := a.NodeAt(path)
			id, revision := n.ID, n.Revision
			if rapid.IntRange(0, 7).Draw(t, "stale") == 0 {
				id, revision =
					rapid.Uint64Range(0, want.last).Draw(t, "id"), rapid.Uint64Range(1, 3).Draw(t, "revision")
			}
			config.GracePeriod = grace
			// Check compares Rated with all nodes
			config.MaxPriority = rapid.SampledFrom([]uint8{0, 0, 7}).Draw(t, "priority")
			config.MaxRequests = rapid.SampledFrom([]uint64{0, 0, 7}).Draw(t, "requests")
			var c Command
			var st protocol.Status
			switch rapid.IntRange(0, 9).Draw(t, "what") {
			case 0, 1:
				c = &NodeCreate{Path: path, Config: config, Parent: protocol.DefaultNodeConfig()}
				st = want.create(path, grace)
			case 2, 3:
				c = &NodeAlter{Path: path, Node: id, Revision: revision, Config: config}
				st = want.alter(path, id, revision, grace)
			case 4:
				c = &NodeDrop{Path: path, Node: id}
				st = want.drop(path, id)
			case 5:
				c = &GraceFloorClear{NodeRef{id, revision}}
				want.clear(id, revision)
			default:
				refs := []NodeRef{{id, revision}}
				for n := range a.Pending() {
					refs = append(refs, NodeRef{n.ID, n.Revision})
				}
				refs = refs[:rapid.IntRange(1, len(refs)).Draw(t, "commit")]
				tokens := rapid.Uint64Range(0, 50).Draw(t, "tokens")
				before := want.gone
				for _, ref := range refs {
					want.commit(ref.Node, ref.Revision)
				}
				if want.gone != before {
					want.tokens = max(want.tokens, tokens)
				}
				c = &NodeCommit{refs, tokens}
			}
			var op OpID
			op[0], op[1] = 1, byte(step+1)
			res := apply(c, op)
			answers[op[1]] = &res
			if res.Status != st {
				t.Fatalf("%#v: %s (%s), want %s", c, res.Status, res.Message, st)
			}
			if again := apply(c, op); again != res { // proposed again, it is answered the same and changes nothing
				t.Fatalf("%#v again: %+v, want %+v", c, again, res)
			}
			if old := rapid.IntRange(1, 1+step).Draw(t, "late"); answers[byte(old)] != nil {
				op[1] = byte(old) // and so is any other one that comes late, whatever became of its node since
				if again := apply(c, op); again != *answers[byte(old)] {
					t.Fatalf("op %d again: %+v, want %+v", old, again, answers[byte(old)])
				}
			}
			if got := nodeTable(&a.State); got != want.String() {
				t.Fatalf("after %#v the catalogue is\n%swant\n%s", c, got, want)
			}
			if err := a.Check(); err != nil {
				t.Fatal(err)
			}
			switch rapid.IntRange(0, 5).Draw(t, "save") {
			case 0:
				b = restored(t, b)
			case 1:
				kept = append(kept, saved{a.BeginSnapshot(), a.Digest()})
			}
			if a.Digest() != b.Digest() {
				t.Fatal("digests differ")
			}
		}
		for _, k := range kept {
			var buf bytes.Buffer
			if _, err := k.snapshot.WriteTo(&buf); err != nil {
				t.Fatal(err)
			}
			m, err := Restore(&buf)
			if err != nil || m.Digest() != k.digest {
				t.Fatalf("a snapshot written late: %v", err)
			}
		}
	})
}
