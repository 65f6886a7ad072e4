package desired

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// State is what a cluster has of the objects that a document names, and of what goes with them.
type State struct {
	Objects map[Key]*Object
	// Caller keeps the right admin on "/"; empty: rights do not count.
	Caller string
}

// Op is the kind of a change: create, alter or delete.
type Op uint8

// What changes do.
const (
	Create Op = iota
	Alter
	Delete
)

var opWords = [...]string{"create", "alter", "delete"}

// String is the word for programs.
func (o Op) String() string { return opWords[o] }

// Sign begins a line of output.
func (o Op) Sign() string { return [...]string{"+", "~", "-"}[o] }

// Field is a line of a change: a setting that differs. Of an object that is made it has no From.
type Field struct{ Name, From, To string }

// Change is a change of one object.
type Change struct {
	Key
	Op     Op
	Fields []Field
	Want   *Object // nil: it is to go
	Have   *Object // nil: it is to be made

	stage int    // changes of a stage begin when those of the stage before have ended
	lane  string // changes of a lane are made one after the other
}

// Kept is an object that is to go, or to change, and stays.
type Kept struct {
	Key
	Why string
}

// Stages, in order. Nodes have one for each depth, those that go behind all others.
const (
	stageNodes      = 0
	stageSemaphores = 1000 + iota
	stageConfigs
	stageLimits
	stageRollouts
	stageTrusts
	stageGranted
	stageTaken
	stageAbsent
	stageAbsentNodes
)

var stageOf = [kinds]int{Node: stageNodes, Semaphore: stageSemaphores, Config: stageConfigs, Limit: stageLimits,
	Rollout: stageRollouts, Trust: stageTrusts}

// Plan returns the changes in the order in which to make them, and the objects that are kept
// although the document says otherwise. The error names a part of the document that this cluster
// cannot have.
func Plan(d *Document, now *State) (changes []*Change, kept []Kept, err error) {
	p := planner{d: d, now: now}
	if err := p.checkLimits(); err != nil {
		return nil, nil, err
	}
	for _, o := range d.Objects {
		if c := changeOf(o, now.Objects[o.Key]); c != nil {
			p.add(c)
		}
	}
	p.takeRights()
	p.drop()
	p.orderLimits()
	slices.SortStableFunc(p.changes, func(a, b *Change) int { return a.stage - b.stage })
	return p.changes, p.kept, nil
}

type planner struct {
	d       *Document
	now     *State
	changes []*Change
	kept    []Kept

	children map[Key][]*Object // of limits of the cluster; nil: not looked for yet
}

// changeOf is what makes have like want; nil: nothing.
func changeOf(want, have *Object) *Change {
	switch {
	case want == nil && have == nil:
		return nil
	case want == nil:
		return &Change{Key: have.Key, Op: Delete, Have: have}
	case have == nil:
		c := &Change{Key: want.Key, Op: Create, Want: want}
		for _, s := range want.Settings {
			if !s.Default {
				c.Fields = append(c.Fields, Field{Name: s.Key, To: s.Value.String()})
			}
		}
		if want.HasData {
			c.Fields = append(c.Fields, Field{Name: "data", To: dataText(want.Data)})
		}
		return c
	}
	c := &Change{Key: want.Key, Op: Alter, Want: want, Have: have}
	for i, s := range want.Settings {
		if s.Key != tierKey {
			c.Fields = fields(c.Fields, s.Key, have.Settings[i].Value, s.Value)
		}
	}
	if want.HasData && !bytes.Equal(want.Data, have.Data) {
		c.Fields = append(c.Fields, Field{"data", dataText(have.Data), dataText(want.Data)})
	}
	if len(c.Fields) == 0 {
		return nil
	}
	return c
}

// tierKey is the setting of a node that only a new one gets.
const tierKey = "tier"

// maxDataText is the longest data that is shown whole, in bytes.
const maxDataText = 200

// dataText shows data.
func dataText(b []byte) string {
	if len(b) == 0 {
		return none
	}
	if utf8.Valid(b) && len(b) <= maxDataText {
		return string(b)
	}
	kind := "bytes"
	if !utf8.Valid(b) {
		kind = "bytes, not UTF-8"
	}
	head := b[:min(len(b), maxDataText)]
	for !utf8.Valid(head) && len(head) > 0 && utf8.Valid(b) {
		head = head[:len(head)-1]
	}
	if !utf8.Valid(head) || bytes.ContainsFunc(head, func(r rune) bool {
		return unicode.IsControl(r) && !unicode.IsSpace(r)
	}) {
		return fmt.Sprintf("%d %s", len(b), kind)
	}
	return fmt.Sprintf("%s… (%d %s)", head, len(b), kind)
}

func (p *planner) add(c *Change) {
	c.stage, c.lane = stageOf[c.Kind], c.Key.String()
	switch {
	case c.Kind == Right:
		if c.stage = stageGranted; rank(c.Want) < rank(c.Have) {
			c.stage = stageTaken
		}
	case c.Kind == Node && c.Op != Delete:
		c.stage = stageNodes + strings.Count(c.Node, "/")
	}
	p.changes = append(p.changes, c)
}

// rank orders rights by what they allow. No entry is more than the entry none, which overrides that
// of a shorter path.
func rank(o *Object) int {
	if o == nil {
		return 1
	}
	return [...]int{0, 2, 3, 4}[slices.Index(rightWords, o.Settings[0].Value.text)]
}

func (p *planner) keep(k Key, format string, args ...any) {
	p.kept = append(p.kept, Kept{k, fmt.Sprintf(format, args...)})
}

// takeRights takes the rights away that named identities have and are not to have. The caller's own
// admin on "/" stays.
func (p *planner) takeRights() {
	for _, k := range p.sorted(func(k Key) bool { return k.Kind == Right }) {
		if _, named := p.d.Identities[k.Name]; named && p.d.find(k) == nil {
			p.add(changeOf(nil, p.now.Objects[k]))
		}
	}
	own := Key{Right, "/", p.now.Caller}
	if have := p.now.Objects[own]; p.now.Caller != "" && have != nil && have.Settings[0].Value.text == "admin" {
		p.changes = slices.DeleteFunc(p.changes, func(c *Change) bool {
			if c.Key == own {
				p.keep(own, "it is that of the identity which applies this, and is never taken; list it, or apply this as another identity")
			}
			return c.Key == own
		})
	}
}

// sorted are the keys of the cluster's objects that match, in order.
func (p *planner) sorted(match func(Key) bool) (keys []Key) {
	for k := range p.now.Objects {
		if match(k) {
			keys = append(keys, k)
		}
	}
	slices.SortFunc(keys, compareKeys)
	return keys
}

// drop removes what is absent, children first.
func (p *planner) drop() {
	var nodes, others []Key
	for _, a := range p.d.Absent {
		switch {
		case p.now.Objects[a.Key] == nil:
		case a.Kind == Node:
			nodes = append(nodes, a.Key)
		default:
			others = append(others, a.Key)
		}
	}
	going := map[Key]bool{}
	for _, k := range others {
		going[k] = true
	}
	p.dropObjects(others, going)
	slices.SortStableFunc(nodes, func(a, b Key) int { return strings.Count(b.Node, "/") - strings.Count(a.Node, "/") })
	inside := map[string][]Key{} // what is in a node or directly below it
	for _, k := range p.sorted(func(k Key) bool { return k.Kind != Right }) {
		of := k.Node
		if k.Kind == Node {
			of = parentOf(k.Node)
		}
		inside[of] = append(inside[of], k)
	}
	gone := map[Key]bool{}
	for _, k := range nodes {
		if p.dropNode(k, inside[k.Node], gone) {
			gone[k] = true
		}
	}
}

// dropObjects removes objects of nodes, unless they are in use.
func (p *planner) dropObjects(keys []Key, going map[Key]bool) {
	slices.SortFunc(keys, func(a, b Key) int {
		if a.Kind == Limit && b.Kind == Limit { // children first
			a, b = b, a
		}
		return compareKeys(a, b)
	})
	for _, k := range keys {
		o := p.now.Objects[k]
		if why := p.limitUse(k, going); why != "" {
			going[k] = false
			p.keep(k, "%s", why)
			continue
		}
		c := changeOf(nil, o)
		c.stage, c.lane = stageAbsent, k.String()
		p.changes = append(p.changes, c)
	}
}

// limitUse is why an object stays; empty: it goes. A limit stays with its children.
func (p *planner) limitUse(k Key, going map[Key]bool) string {
	if o := p.now.Objects[k]; o.Uses != "" || k.Kind != Limit {
		return o.Uses
	}
	for _, child := range p.childrenOf(k) {
		if !going[child.Key] {
			return "it has the child " + child.Name
		}
	}
	return ""
}

// dropNode removes a node with all that it has. A node that is in use, or in which something is,
// stays as it is.
func (p *planner) dropNode(k Key, inside []Key, gone map[Key]bool) bool {
	if why := p.now.Objects[k].Uses; why != "" {
		p.keep(k, "%s", why)
		return false
	}
	var objects []Key
	going := map[Key]bool{}
	for _, x := range inside {
		switch uses := p.now.Objects[x].Uses; {
		case x.Kind == Node && !gone[x]:
			p.keep(k, "there is %s below it", x)
			return false
		case x.Kind != Node && uses != "":
			p.keep(k, "%s: %s", x, uses)
			return false
		case x.Kind != Node:
			objects, going[x] = append(objects, x), true
		}
	}
	p.dropObjects(objects, going)
	c := changeOf(nil, p.now.Objects[k])
	c.stage, c.lane = stageAbsentNodes+1000-strings.Count(k.Node, "/"), k.String()
	p.changes = append(p.changes, c)
	return true
}
