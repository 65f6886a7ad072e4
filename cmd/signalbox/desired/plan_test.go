package desired

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
)

// model is a naive cluster: a map of objects, and the rules that servers have.
type model struct {
	mu      sync.Mutex
	objects map[Key]*Object
	made    int
	meddle  func(m *model) // called before each change, with the lock held
	lose    func(m *model) // called instead of the first change, whose answer is lost
	fail    int            // the change with this number, from 1, fails without a reason that is about it
}

var (
	errRule = errors.New("refused")
	errLost = errors.New("the answer is lost")
)

func (m *model) Classify(err error) Verdict {
	switch {
	case errors.Is(err, errRule):
		return Refused
	case errors.Is(err, errLost):
		return Lost
	}
	return Failed
}

func (m *model) Get(_ context.Context, k Key) (*Object, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return clone(m.objects[k]), nil
}

func clone(o *Object) *Object {
	if o == nil {
		return nil
	}
	c := *o
	return &c
}

func (m *model) Do(_ context.Context, c *Change) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.made++; m.made == m.fail {
		return errors.New("the connection is lost")
	}
	if m.meddle != nil {
		m.meddle(m)
	}
	if m.lose != nil && m.made == 1 {
		m.lose(m)
		return errLost
	}
	is := m.objects[c.Key]
	switch {
	case c.Op == Create && is != nil, c.Op != Create && is == nil, is != nil && c.Have.Revision != is.Revision:
		return fmt.Errorf("%w: %s is not what it was", errRule, c.Key)
	case c.Op == Delete:
		return m.drop(c.Key)
	}
	if c.Kind != Node && c.Kind < Right && m.objects[Key{Kind: Node, Node: c.Node}] == nil {
		return fmt.Errorf("%w: %s has no node", errRule, c.Key)
	}
	next := clone(c.Want)
	if is != nil {
		next.Revision = is.Revision + 1
		next.Uses = is.Uses
		if !next.HasData {
			next.Data = is.Data
		}
	}
	if c.Kind == Limit {
		if err := m.fits(next); err != nil {
			return err
		}
	}
	if c.Kind == Node { // missing parents are made
		for path := parentOf(c.Node); path != ""; path = parentOf(path) {
			if k := (Key{Kind: Node, Node: path}); m.objects[k] == nil {
				m.objects[k] = plain(k, 0)
			}
		}
	}
	m.objects[c.Key] = next
	return nil
}

// drop removes an object that nothing needs.
func (m *model) drop(k Key) error {
	if o := m.objects[k]; o.Uses != "" {
		return fmt.Errorf("%w: %s %s", errRule, k, o.Uses)
	}
	for other := range m.objects {
		if k.Kind == Node && other.Kind != Right && (other.Node == k.Node && other != k || below(other.Node, k.Node)) ||
			k.Kind == Limit && other.Kind == Limit && other.Node == k.Node && below(other.Name, k.Name) {
			return fmt.Errorf("%w: %s is in the way of dropping %s", errRule, other, k)
		}
	}
	delete(m.objects, k)
	return nil
}

// fits checks a limit against its parent and its children.
func (m *model) fits(o *Object) error {
	sums := map[string]uint64{}
	for k, x := range m.objects {
		if k.Kind == Limit && k.Node == o.Node && k.Name != o.Name {
			sums[parentOf(k.Name)] += x.Min
		}
	}
	sums[parentOf(o.Name)] += o.Min
	above := parentOf(o.Name)
	parent := m.objects[Key{Limit, o.Node, above}]
	switch {
	case above != "" && parent == nil:
		return fmt.Errorf("%w: %s has no parent", errRule, o.Key)
	case above != "" && sums[above] > parent.Cap, sums[o.Name] > o.Cap:
		return fmt.Errorf("%w: guarantees at %s", errRule, o.Key)
	}
	return nil
}

// plain is an object with one setting, in the form that each kind has here.
func plain(k Key, value int) *Object {
	switch k.Kind {
	case Right:
		return RightObject(k.Name, k.Node, rightWords[value%len(rightWords)], Position{})
	case Limit:
		o := limit(k, uint64(value), uint64(value))
		if parentOf(k.Name) == "" {
			o = limit(k, 0, uint64(value))
		}
		return o
	}
	o := &Object{Key: k, Settings: []Setting{{Key: "x", Value: Word(fmt.Sprint(value)), Default: value == 0}}}
	if k.Kind == Config {
		o.HasData, o.Data = true, []byte(fmt.Sprint(value))
	}
	return o
}

func limit(k Key, least, most uint64) *Object {
	return &Object{Key: k, Min: least, Cap: most,
		Settings: []Setting{{Key: "min", Value: Word(fmt.Sprint(least))}, {Key: "cap", Value: Word(fmt.Sprint(most))}}}
}

// randomValue is one for plain. Most guarantees of limits fit into their parents'.
func randomValue(r *rand.Rand, k Key) int {
	if k.Kind == Limit && parentOf(k.Name) == "" {
		return 3 + r.IntN(8)
	}
	if k.Kind == Limit {
		return r.IntN(5 - 2*strings.Count(k.Name, "/") + 1)
	}
	return r.IntN(8)
}

// keySpace are the keys of random documents and clusters.
func keySpace() (keys []Key) {
	for _, path := range []string{"/a", "/a/b", "/a/b/c", "/d", "/d/e"} {
		keys = append(keys, Key{Kind: Node, Node: path})
		for _, name := range []string{"x", "y"} {
			keys = append(keys, Key{Semaphore, path, name}, Key{Config, path, name}, Key{Rollout, path, name})
		}
		for _, name := range []string{"r", "r/a", "r/b", "r/a/a", "r/a/b", "s"} {
			keys = append(keys, Key{Limit, path, name})
		}
	}
	for _, path := range []string{"/", "/a", "/d/e"} {
		keys = append(keys, Key{Right, path, "me"}, Key{Right, path, "she"})
	}
	return append(keys, Key{Kind: Trust, Name: "t"}, Key{Kind: Trust, Name: "u"})
}

// randomModel is a cluster that obeys its rules.
func randomModel(r *rand.Rand) *model {
	m := &model{objects: map[Key]*Object{}}
	for _, k := range keySpace() { // parents before children
		if r.IntN(3) == 0 {
			continue
		}
		o := plain(k, randomValue(r, k))
		if k.Kind == Semaphore && r.IntN(2) == 0 {
			o.Data, o.HasData = []byte("d"), true
		}
		o.Revision = uint64(r.IntN(5))
		_ = m.Do(context.Background(), &Change{Key: k, Op: Create, Want: o})
		if is := m.objects[k]; is != nil && k.Kind != Config && k.Kind != Limit && k.Kind < Right && r.IntN(6) == 0 {
			is.Uses = "it is used"
		}
	}
	return m
}

// randomDocument names objects of the key space.
func randomDocument(r *rand.Rand) *Document {
	d := &Document{Identities: map[string]Position{}}
	for _, name := range []string{"me", "she"} {
		if r.IntN(2) == 0 {
			d.Identities[name] = Position{}
		}
	}
	named, careless := map[Key]bool{}, r.IntN(8) == 0
	for _, k := range keySpace() {
		_, identity := d.Identities[k.Name]
		above := Key{Kind: Node, Node: k.Node}
		if k.Kind == Limit && parentOf(k.Name) != "" && !careless {
			above.Kind, above.Name = Limit, parentOf(k.Name)
		}
		dropped := slices.ContainsFunc(d.Absent, func(a Named) bool { return a.Kind == Node && below(k.Node, a.Node) })
		switch n := r.IntN(14); {
		case k.Kind == Right && !identity, k.Kind < Right && k.Kind != Node && !named[above], k.Kind == Node && dropped && !careless:
		case n < 9:
			named[k] = true
			o := plain(k, randomValue(r, k))
			if k.Kind == Semaphore && r.IntN(3) == 0 {
				o.HasData, o.Data = true, []byte(fmt.Sprint(r.IntN(2)))
			}
			d.Objects = append(d.Objects, o)
		case n == 9 && k.Kind != Right, n == 10 && k.Kind == Node:
			d.Absent = append(d.Absent, Named{Key: k})
		}
	}
	return d
}

func (m *model) state() *State {
	s := &State{Objects: map[Key]*Object{}, Caller: "me"}
	for k, o := range m.objects {
		s.Objects[k] = clone(o)
	}
	return s
}

// check compares the cluster with what a document says, object by object.
func (m *model) check(before map[Key]*Object, d *Document, kept []Kept) error {
	stays := map[Key]bool{}
	for _, k := range kept {
		stays[k.Key] = true
	}
	gone := func(k Key) bool {
		for _, a := range d.Absent {
			if a.Key == k || a.Kind == Node && !stays[a.Key] && k.Kind != Right && k.Node == a.Node {
				return true
			}
		}
		_, named := d.Identities[k.Name]
		return k.Kind == Right && named
	}
	for _, k := range keySpace() {
		is, was, want := m.objects[k], before[k], d.find(k)
		switch {
		case stays[k]:
			if (is == nil) != (was == nil) || is != nil && changeOf(was, is) != nil {
				return fmt.Errorf("%s is kept, and was changed", k)
			}
		case want != nil:
			if is == nil || changeOf(want, is) != nil {
				return fmt.Errorf("%s is not as the document says: %+v", k, is)
			}
			if was != nil && !want.HasData && string(was.Data) != string(is.Data) {
				return fmt.Errorf("%s has other data", k)
			}
		case gone(k):
			if is != nil {
				return fmt.Errorf("%s is still there", k)
			}
		case k.Kind == Node && was == nil && is != nil: // made with a node below it
		case was == nil && is != nil, was != nil && is == nil, is != nil && is.Revision != was.Revision:
			return fmt.Errorf("%s is not named, and was touched", k)
		}
	}
	return nil
}

// TestPlanAgainstModel plans random documents for random clusters, carries the plans out on many
// goroutines, and compares each object with what the document says. A second run has nothing to do.
func TestPlanAgainstModel(t *testing.T) {
	plans, changed, keptOf, faults := 0, map[string]int{}, 0, 0
	for seed := range uint64(500) {
		r := rand.New(rand.NewPCG(seed, 1))
		m, d := randomModel(r), randomDocument(r)
		if err := d.check(); err != nil {
			faults++
			continue
		}
		m.made = 0
		before := m.state()
		changes, kept, err := Plan(d, before)
		if err != nil {
			faults++
			continue
		}
		plans++
		keptOf += len(kept)
		for _, c := range changes {
			changed[c.Op.String()+" "+c.Kind.String()]++
		}
		more, err := Run(t.Context(), changes, m, func(*Change) error { return nil })
		if err != nil || len(more) > 0 {
			if err == nil && hasLimit(kept) { // what is kept has guarantees that others were to get
				continue
			}
			t.Fatalf("seed %d: %v, kept %v", seed, err, more)
		}
		if err := m.check(before.Objects, d, kept); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		again, stillKept, err := Plan(d, m.state())
		if err != nil || len(again) > 0 || len(stillKept) != len(kept) {
			t.Fatalf("seed %d: the second plan has %d changes, keeps %d of %d, %v", seed, len(again), len(stillKept), len(kept), err)
		}
	}
	if plans < 250 || faults < 20 || keptOf < 100 || len(changed) != 3*int(kinds) {
		t.Errorf("%d plans, %d faults, %d kept, %v: the documents do not try everything", plans, faults, keptOf, slices.Sorted(maps.Keys(changed)))
	}
}

func hasLimit(kept []Kept) bool {
	return slices.ContainsFunc(kept, func(k Kept) bool { return k.Kind == Limit })
}

// TestRunEndedAnywhere ends a run at each change, as a kill does; the next run does the rest.
func TestRunEndedAnywhere(t *testing.T) {
	ended := 0
	for seed := range uint64(16) {
		for at := 1; ; at++ {
			r := rand.New(rand.NewPCG(seed, 2))
			m, d := randomModel(r), randomDocument(r)
			if d.check() != nil {
				break
			}
			m.made, m.fail = 0, at
			before := m.state()
			changes, kept, err := Plan(d, before)
			if err != nil || len(changes) < at || hasLimit(kept) {
				break
			}
			if _, err := Run(t.Context(), changes, m, func(*Change) error { return nil }); err == nil {
				t.Fatalf("seed %d: the run went on behind the error of change %d", seed, at)
			}
			ended++
			m.fail = 0
			changes, again, err := Plan(d, m.state())
			if err != nil || len(again) != len(kept) {
				t.Fatalf("seed %d, ended at %d: kept %v, %v", seed, at, again, err)
			}
			if more, err := Run(t.Context(), changes, m, func(*Change) error { return nil }); err != nil || len(more) > 0 {
				t.Fatalf("seed %d, ended at %d: %v, kept %v", seed, at, err, more)
			}
			if err := m.check(before.Objects, d, kept); err != nil {
				t.Fatalf("seed %d, ended at %d: %v", seed, at, err)
			}
		}
	}
	if ended < 50 {
		t.Errorf("%d runs were ended; expected more", ended)
	}
}

// TestTwoRunsAtOnce has two runs of one document end with what it says.
func TestTwoRunsAtOnce(t *testing.T) {
	for seed := range uint64(100) {
		r := rand.New(rand.NewPCG(seed, 3))
		m, d := randomModel(r), randomDocument(r)
		if d.check() != nil {
			continue
		}
		before := m.state()
		plans := [2][]*Change{}
		var kept []Kept
		var err error
		for i := range plans {
			if plans[i], kept, err = Plan(d, m.state()); err != nil {
				break
			}
		}
		if err != nil || hasLimit(kept) {
			continue
		}
		var wg sync.WaitGroup
		errs := [2]error{}
		for i := range plans {
			wg.Go(func() {
				_, errs[i] = Run(t.Context(), plans[i], m, func(*Change) error { return nil })
			})
		}
		wg.Wait()
		if err := errors.Join(errs[:]...); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if err := m.check(before.Objects, d, kept); err != nil {
			// Steps of the two may have come in each other's way, as two people's do: a third run
			// ends it.
			changes, _, failed := Plan(d, m.state())
			if failed != nil {
				t.Fatalf("seed %d: %v, %v", seed, err, failed)
			}
			if more, failed := Run(t.Context(), changes, m, func(*Change) error { return nil }); failed != nil || len(more) > 0 {
				t.Fatalf("seed %d: %v, then %v, %v", seed, err, failed, more)
			}
			if err := m.check(before.Objects, d, kept); err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
		}
	}
}

// TestMovedObjects has an object change between its comparison and its change: it is compared
// again, three times at most.
func TestMovedObjects(t *testing.T) {
	node, key := Key{Kind: Node, Node: "/a"}, Key{Rollout, "/a", "x"}
	start := func() (*model, []*Change) {
		m := &model{objects: map[Key]*Object{node: plain(node, 0), key: plain(key, 1)}}
		d := &Document{Objects: []*Object{plain(node, 0), plain(key, 5)}}
		changes, _, err := Plan(d, m.state())
		if err != nil || len(changes) != 1 {
			t.Fatalf("%v, %v", changes, err)
		}
		return m, changes
	}
	run := func(m *model, changes []*Change) (kept []Kept, done int) {
		kept, err := Run(t.Context(), changes, m, func(*Change) error { done++; return nil })
		if err != nil {
			t.Fatal(err)
		}
		return kept, done
	}
	move := func(value int) func(*model) {
		return func(m *model) {
			next := plain(key, value)
			next.Revision = m.objects[key].Revision + 1
			m.objects[key] = next
		}
	}
	m, changes := start()
	times := 0
	m.meddle = func(m *model) {
		if times++; times == 1 {
			move(2)(m)
		}
	}
	if kept, done := run(m, changes); len(kept) > 0 || done != 1 || changes[0].Fields[0].From != "2" {
		t.Errorf("moved once: kept %v, %d done, fields %v", kept, done, changes[0].Fields)
	}
	for _, first := range []int{1, 5} { // what was asked for was not done, or was
		m, changes = start()
		m.lose = func(m *model) { move(first)(m) }
		if kept, done := run(m, changes); len(kept) > 0 || done != 1 {
			t.Errorf("an answer was lost, and it is %d: kept %v, %d done", first, kept, done)
		}
	}
	m, changes = start()
	m.meddle = move(5)
	if kept, done := run(m, changes); len(kept) > 0 || done != 0 {
		t.Errorf("somebody else did it: kept %v, %d done", kept, done)
	}
	m, changes = start()
	m.meddle = func(m *model) { move(6 + m.made)(m) }
	if kept, done := run(m, changes); len(kept) != 1 || done != 0 || m.made != attempts {
		t.Errorf("never at rest: kept %v, %d done, %d attempts", kept, done, m.made)
	}
	m, changes = start()
	m.meddle = func(m *model) { delete(m.objects, key) }
	if kept, done := run(m, changes); len(kept) > 0 || done != 1 || changes[0].Op != Create {
		t.Errorf("gone meanwhile: kept %v, %d done as %s", kept, done, changes[0].Op)
	}
}

// TestOrderOfRights has rights granted before others are taken.
func TestOrderOfRights(t *testing.T) {
	right := func(word string) *Object { return RightObject("x", "/a", word, Position{}) }
	for _, x := range []struct {
		have, want *Object
		taken      bool
	}{
		{nil, right("read"), false}, {nil, right("none"), true}, {right("none"), nil, false}, {right("read"), nil, true},
		{right("use"), right("read"), true}, {right("use"), right("admin"), false},
	} {
		var p planner
		p.add(changeOf(x.want, x.have))
		if got := p.changes[0].stage == stageTaken; got != x.taken {
			t.Errorf("from %v to %v: taken %t", x.have, x.want, got)
		}
	}
}

// TestFields shows each part of a setting that differs on a line of its own.
func TestFields(t *testing.T) {
	pair := func(keys ...string) (v Value) {
		for _, k := range keys {
			key, text, _ := strings.Cut(k, "=")
			v.Add(key, Text(text))
		}
		return v
	}
	for _, x := range []struct {
		from, to Value
		want     string
	}{
		{Word("1"), Word("2"), "[{s 1 2}]"},
		{pair("a=1", "b=2"), pair("a=1", "b=3", "c=4"), "[{s b 2 3} {s c none 4}]"},
		{pair("a=1"), Map(), "[{s a 1 none}]"},
		{List(pair("name=x", "d=1"), pair("name=y")), List(pair("name=x", "d=2"), pair("name=y")), "[{s x d 1 2}]"},
		{List(pair("name=x"), pair("name=y")), List(pair("name=y"), pair("name=x")), "[{s [x, y] [y, x]}]"},
		{Texts([]string{"a"}), Texts([]string{"a", "b"}), "[{s [a] [a, b]}]"},
		{Texts([]string{"a, b"}), Texts([]string{"a", "b"}), "[{s [a, b] [a, b]}]"},
	} {
		if got := fmt.Sprint(fields(nil, "s", x.from, x.to)); got != x.want {
			t.Errorf("%v to %v: %s, want %s", x.from, x.to, got, x.want)
		}
	}
}
