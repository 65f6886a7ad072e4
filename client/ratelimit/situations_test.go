package ratelimit

import (
	"fmt"
	"testing"

	"github.com/signalbox-dev/signalbox/protocol"
)

// situation is a fleet as people have it: most of it rests. Those who call have all of the limit, and the meters
// say what they may have.
type situation struct {
	name     string
	root     protocol.LimitConfig
	children []protocol.LimitConfig
	resting  int // programs that have a leaf open, in turn, and never call
	programs []program
}

// program has leaves open, all of them if it does not say which, and calls some.
type program struct {
	leaves []int // nil: all; of a tree without children there is one
	calls  []simCaller
	at     []int   // the leaves that these call
	share  float64 // of the limit, that it is to have; 0: it is not compared
	every  float64 // ms after which it is killed, and another process begins; 0: it lives
	client *simClient
	began  float64
}

func leaves(n int, c protocol.LimitConfig) (list []protocol.LimitConfig) {
	for range n {
		list = append(list, c)
	}
	return list
}

func (s *situation) begin(t *testing.T, seed uint64) *simulation {
	x := newWorld(t, seed, s.root, s.children...)
	x.still = true
	for i := range s.resting {
		x.begin(x.add(), x.leaves[i%len(x.leaves)])
	}
	for i := range s.programs {
		x.startProgram(&s.programs[i])
	}
	return x
}

// run runs for some seconds. Programs that do not live are killed, and begin again.
func (s *situation) run(x *simulation, seconds float64) {
	for end := x.now + seconds*1000; x.now < end; {
		for i := range s.programs {
			if p := &s.programs[i]; p.every > 0 && x.now >= p.began+p.every {
				x.kill(p.client)
				x.startProgram(p)
			}
		}
		x.step()
	}
}

func (x *simulation) startProgram(p *program) {
	paths := x.leaves
	if p.leaves != nil {
		paths = nil
		for _, k := range p.leaves {
			paths = append(paths, x.leaves[k])
		}
	}
	c := x.add()
	p.client, p.began = c, x.now
	opened := x.begin(c, paths...)
	for k := range p.calls {
		q := p.calls[k]
		q.leaves = []*leaf{opened[p.at[k]]}
		c.callers = append(c.callers, &q)
	}
}

// TestSituations: who calls has the limit, whatever rests beside it.
func TestSituations(t *testing.T) {
	one := []simCaller{{amount: 1000, waits: true}}
	denied := []simCaller{{amount: 1000}}
	none := protocol.LimitConfig{Unlimited: true}
	var list []situation
	for _, n := range []int{40, 250, 400} {
		for _, x := range []protocol.LimitConfig{{Rate: 100_000}, {Rate: 1_000_000}, {Rate: 1_000_000, Burst: 100, Lease: 500}, {Rate: 20_000, Lease: 10_000}} {
			list = append(list, situation{name: fmt.Sprintf("one of %d tenants calls", n), root: x, children: leaves(n, none),
				programs: []program{{calls: one, at: []int{n / 2}}}})
		}
	}
	list = append(list,
		situation{name: "290 programs rest on the leaf of one", root: protocol.LimitConfig{Rate: 1_000_000}, resting: 290,
			programs: []program{{calls: one, at: []int{0}}}},
		situation{name: "290 programs rest on the leaf of one that does not wait", root: protocol.LimitConfig{Rate: 1_000_000}, resting: 290,
			programs: []program{{calls: denied, at: []int{0}}}},
		situation{name: "more limiters than fit a refresh, three of which call", root: protocol.LimitConfig{Rate: 1_000_000}, children: leaves(1_500, none),
			programs: []program{{calls: append(append(one, denied...), one...), at: []int{0, 700, 1_499}}}},
	)
	ten := situation{name: "ten of 500 programs call", root: protocol.LimitConfig{Rate: 1_000_000}, resting: 490}
	for range 10 {
		ten.programs = append(ten.programs, program{calls: one, at: []int{0}})
	}
	list = append(list, ten)
	for _, weight := range []uint32{4, 24, 100} { // the other's share is under a twentieth of the tree
		for _, lease := range []uint64{500, 1000, 3000} {
			list = append(list, situation{name: fmt.Sprintf("a small share of 1 beside %d, lease %d ms", weight, lease), root: protocol.LimitConfig{Rate: 100_000, Lease: lease},
				children: []protocol.LimitConfig{{Unlimited: true, Weight: weight}, {Unlimited: true, Weight: 1}},
				programs: []program{{leaves: []int{0}, calls: one, at: []int{0}, share: float64(weight) / float64(weight+1)},
					{leaves: []int{1}, calls: one, at: []int{0}, share: 1 / float64(weight+1)}}})
		}
	}
	list = append(list, situation{name: "a small min beside a busy leaf", root: protocol.LimitConfig{Rate: 100_000, Lease: 1000},
		children: []protocol.LimitConfig{{Unlimited: true, Weight: 10_000}, {Unlimited: true, Min: 3_000}},
		programs: []program{{leaves: []int{0}, calls: one, at: []int{0}, share: 0.97}, {leaves: []int{1}, calls: one, at: []int{0}, share: 0.03}}})
	for i := range list {
		s := &list[i]
		x := s.begin(t, uint64(i))
		s.run(x, 2)
		from, before, sum := x.now, make([]float64, len(s.programs)), 0.
		for k := range s.programs {
			before[k] = s.programs[k].client.got
		}
		s.run(x, 4)
		limit, grains := float64(s.root.Rate)*(x.now-from)/1000, 0.
		for k := range s.programs {
			p := &s.programs[k]
			got, grain := p.client.got-before[k], float64(p.calls[0].amount)+1000
			sum, grains = sum+got, grains+grain
			if got < 0.95*p.share*limit-grain {
				t.Errorf("%s: program %d had %.0f of %.0f thousandths\n%s", s.name, k, got, p.share*limit, x.describe())
			}
		}
		if sum < 0.95*limit-grains {
			t.Errorf("%s: all had %.0f of %.0f thousandths\n%s", s.name, sum, limit, x.describe())
		}
	}
}

// TestKilledProgramsCostLittle: beside programs that are started and killed again and again, one
// that lives has more than eight tenths of the limit.
func TestKilledProgramsCostLittle(t *testing.T) {
	waits, denied := simCaller{amount: 1000, waits: true}, simCaller{amount: 1000}
	seed := uint64(0)
	for _, rate := range []uint64{30_000, 200_000, 1_000_000} {
		for _, lease := range []uint64{500, 1000, 3000, 20_000} {
			for _, every := range []float64{200, 400, 600} {
				for _, calls := range []simCaller{waits, denied} {
					if seed++; rate < 100_000 && !calls.waits {
						continue // without a lease it asks again and again for units to have them here
					}
					s := situation{root: protocol.LimitConfig{Rate: rate, Lease: lease, Burst: 100 + seed%3*700}}
					s.programs = []program{{calls: []simCaller{calls}, at: []int{0}}, {calls: []simCaller{waits}, at: []int{0}, every: every}}
					if seed%4 == 0 { // of another tenant
						s.children = leaves(2, protocol.LimitConfig{Unlimited: true})
						s.programs[1].at[0] = 1
					}
					x := s.begin(t, seed)
					s.run(x, 2)
					healthy := s.programs[0].client
					before, from := healthy.got, x.now
					s.run(x, 3)
					got, limit := healthy.got-before, float64(rate)*(x.now-from)/1000
					if got < 0.85*limit {
						t.Errorf("rate %d, burst %d ms, lease %d ms, killed every %.0f ms, waits %t, %d resources: %.1f %% of the limit",
							rate/1000, s.root.Burst, lease, every, calls.waits, len(x.meters), 100*got/limit)
					}
				}
			}
		}
	}
}

// TestSeldomCalls: a program that calls now and then waits a round trip for nearly each call, beside
// programs whose leases have all the rest.
func TestSeldomCalls(t *testing.T) {
	seed, calls, late := uint64(0), 0, 0
	for _, rate := range []uint64{100_000, 1_000_000} {
		for _, lease := range []uint64{500, 3000} {
			for _, every := range []float64{700, 1500, 4000} {
				seed++
				busy := program{calls: []simCaller{{amount: 1000, waits: true}}, at: []int{0}}
				seldom := program{calls: []simCaller{{amount: 1000, waits: true, demand: 1e6 / every}}, at: []int{0}}
				s := situation{root: protocol.LimitConfig{Rate: rate, Lease: lease}, programs: []program{seldom, busy, busy}}
				if seed%2 == 0 { // of another tenant
					s.children = leaves(2, protocol.LimitConfig{Unlimited: true})
					s.programs[0].at = []int{1}
				}
				x := s.begin(t, seed)
				s.run(x, 9)
				q := s.programs[0].client.callers[0]
				before, from := s.programs[1].client.got+s.programs[2].client.got, x.now
				waited := map[*call]float64{}
				for x.now < from+15_000 {
					x.step()
					for _, w := range q.waiting {
						if !w.finished {
							waited[w.call] = x.now - w.since
						}
					}
				}
				calls += int(15_000 / every)
				for _, ms := range waited {
					if ms > 50 {
						late++
					}
				}
				got := (s.programs[1].client.got + s.programs[2].client.got - before) / (float64(rate) * (x.now - from) / 1000)
				if got < 0.95 {
					t.Errorf("rate %d, lease %d ms, a call each %.0f ms: the others had %.1f %%", rate/1000, lease, every, 100*got)
				}
			}
		}
	}
	t.Logf("%d of %d calls waited for more than 50 ms", late, calls)
	if late > calls/10 {
		t.Errorf("%d of %d calls waited for more than 50 ms", late, calls)
	}
}
