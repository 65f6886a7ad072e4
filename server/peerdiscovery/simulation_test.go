package peerdiscovery

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// simulation is a set of instances and the messages between them. Every choice is the seed's.
type simulation struct {
	t        *testing.T
	random   *rand.Rand
	nodes    []*node
	at       map[string]*node // who answers at an address
	flying   []message
	faults   bool // messages get lost, processes restart
	isolated bool // nobody reaches another
	restarts int
}

// node is an instance: what survives its process, and the process.
type node struct {
	name      string
	voter     bool
	addresses []string
	peers     []string // given, then with what was learned

	life    int // how many processes it has had; 0 before the first
	machine *Machine
	round   int  // counts rounds of questions, over all processes
	asking  int  // calls of this round that have neither come to an end nor been given up
	cluster bool // the cluster made here is on disk
}

// message is a question, or the answer to one.
type message struct {
	from   *node
	life   int // of from: an answer to an earlier process finds nobody
	round  int // of from
	call   Call
	answer *Response
}

func newSimulation(t *testing.T, seed uint64, n int) *simulation {
	w := &simulation{t: t, random: rand.New(rand.NewPCG(seed, uint64(n))), at: map[string]*node{}}
	for i := range n {
		x := &node{name: string(rune('A' + i)), voter: w.random.IntN(5) > 0}
		for j := range 1 + w.random.IntN(2) {
			// Numbers in front: which instance has the smallest address is the seed's too.
			address := fmt.Sprintf("%02d-%s%d:1", w.random.IntN(100), x.name, j)
			x.addresses = append(x.addresses, address)
			w.at[address] = x
		}
		w.nodes = append(w.nodes, x)
	}
	w.lists()
	return w
}

// lists gives everybody a list of peers, at random, so that any two have an address of one instance
// in theirs.
func (w *simulation) lists() {
	for try := 0; ; try++ {
		for _, x := range w.nodes {
			x.peers = nil
			for _, y := range w.nodes {
				if w.random.IntN(3) == 0 || try > 100 {
					x.peers = append(x.peers, y.addresses[w.random.IntN(len(y.addresses))])
				}
			}
			w.random.Shuffle(len(x.peers), func(i, j int) { x.peers[i], x.peers[j] = x.peers[j], x.peers[i] })
		}
		if w.related() {
			return
		}
	}
}

func (w *simulation) related() bool {
	for _, x := range w.nodes {
		for _, y := range w.nodes {
			if !slices.ContainsFunc(w.nodes, func(z *node) bool { return w.knows(x, z) && w.knows(y, z) }) {
				return false
			}
		}
	}
	return true
}

// knows reports whether x starts with an address of y.
func (w *simulation) knows(x, y *node) bool {
	if x == y && (x.voter || len(x.peers) == 0) {
		return true
	}
	return slices.ContainsFunc(x.peers, func(a string) bool { return w.at[a] == y })
}

func (w *simulation) start(x *node) {
	x.life++
	x.asking = 0
	m, err := NewMachine(fmt.Sprintf("%s-%d", x.name, x.life), x.voter, x.addresses[0], x.peers)
	if err != nil {
		w.t.Fatal(err)
	}
	x.machine = m
	if x.cluster {
		m.Finish(x.addresses[0])
	}
}

// step does one thing that can happen.
func (w *simulation) step() {
	x := w.nodes[w.random.IntN(len(w.nodes))]
	r, decided := Result{}, false
	if x.machine != nil {
		r, decided = x.machine.Result()
	}
	switch c := w.random.IntN(20); {
	case x.machine == nil:
		if c < 3 {
			w.start(x)
		}
	case c == 0 && w.faults && w.restarts < 3:
		w.restarts++
		w.start(x)
	case c == 1 && r.Bootstrap && !x.cluster:
		x.cluster = true
		x.machine.Finish(x.addresses[w.random.IntN(len(x.addresses))])
	case c == 2 && w.faults && !decided:
		x.asking = 0 // given up; answers come all the same
	case c < 6 && !decided && x.asking == 0:
		x.round++
		for _, call := range x.machine.NextCalls() {
			x.asking++
			w.flying = append(w.flying, message{from: x, life: x.life, round: x.round, call: call})
		}
	case len(w.flying) > 0:
		i := w.random.IntN(len(w.flying))
		m := w.flying[i]
		w.flying = slices.Delete(w.flying, i, i+1)
		if w.faults && w.random.IntN(5) == 0 {
			return // lost: given up some time
		}
		w.deliver(m)
	}
}

func (w *simulation) deliver(m message) {
	if m.answer != nil {
		m.over()
		if m.life == m.from.life {
			if err := m.from.machine.HandleResponse(m.call, *m.answer); err != nil {
				w.t.Fatal(err)
			}
		}
		return
	}
	to := w.at[m.call.Address]
	if to == nil || to.machine == nil || (w.isolated && to != m.from) {
		m.over()
		return
	}
	a, err := to.machine.HandleRequest(m.call.Request, m.call.Address)
	if err != nil {
		w.t.Fatal(err)
	}
	to.peers = to.machine.Peers() // kept before the answer leaves
	w.flying = append(w.flying, message{from: m.from, life: m.life, round: m.round, call: m.call, answer: &a})
}

// over counts a call as ended, if it is of the round that is waited for.
func (m *message) over() {
	if m.round == m.from.round && m.from.asking > 0 {
		m.from.asking--
	}
}

// leaders are those who may make a cluster, or have made one.
func (w *simulation) leaders() (list []*node) {
	for _, x := range w.nodes {
		if x.machine == nil {
			continue
		}
		if r, ok := x.machine.Result(); ok && r.Bootstrap || x.cluster {
			list = append(list, x)
		}
	}
	return list
}

func (w *simulation) done() bool {
	for _, x := range w.nodes {
		if x.machine == nil {
			return false
		}
		if _, ok := x.machine.Result(); !ok {
			return false
		}
	}
	return true
}
