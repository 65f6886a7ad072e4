package integration

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/signalbox-dev/signalbox/client/process"
)

// moveRounds is a coordination process of the workload: three of its sessions are members, and
// round follows round.
type moveRounds struct {
	name    string
	op      *process.Operator
	members []*moveMember
	done    atomic.Int64 // rounds that all members completed
}

// moveMember agrees with the others on the epoch.
type moveMember struct {
	process.BaseHandler
	mu        sync.Mutex
	open      uint64
	epoch     uint64 // completed last
	result    string
	violation string
	changed   chan struct{} // capacity 1
}

func (h *moveMember) Prepare(r *process.Round) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.open != 0 || r.Epoch() <= h.epoch {
		h.violation = fmt.Sprintf("round %d is prepared while %d is open, after %d", r.Epoch(), h.open, h.epoch)
	}
	h.open = r.Epoch()
	return nil
}

func (h *moveMember) Coordinate(r *process.Round) error {
	return r.Broadcast(nil, nil, process.Callback{Answered: func([]process.Answer) {
		_ = r.Complete(fmt.Append(nil, r.Epoch())) // an error: the round is over
	}})
}

func (h *moveMember) Process(q *process.Request) error { return q.Reply(nil) }

func (h *moveMember) over(r *process.Round) {
	if h.open != r.Epoch() {
		h.violation = fmt.Sprintf("round %d is over while %d is open", r.Epoch(), h.open)
	}
	h.open = 0
	select {
	case h.changed <- struct{}{}:
	default:
	}
}

func (h *moveMember) Cancel(r *process.Round) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.over(r)
}

func (h *moveMember) Complete(r *process.Round) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.over(r)
	h.epoch, h.result = r.Epoch(), string(r.Result())
}

// addRounds has some sessions of the workload join processes, whose names lie in as many buckets.
func (m *moveWorkload) addRounds(n int) {
	m.t.Helper()
	for i := range n {
		x := &moveRounds{name: fmt.Sprintf("round-%d", i), op: process.NewOperator(m.sessions[0].Node(), fmt.Sprintf("round-%d", i))}
		for k := range 3 {
			h := &moveMember{changed: make(chan struct{}, 1)}
			p, err := process.Join(m.ctx, m.sessions[(i+k)%len(m.sessions)], x.name, h, process.Options{})
			if err != nil {
				m.t.Fatal(err)
			}
			m.wg.Go(func() { // the membership ends with the session, when the workload's clients are closed
				select {
				case <-p.Done():
					m.failed("membership in %s is over: %v", x.name, p.Err())
				case <-m.ctx.Done():
				}
			})
			x.members = append(x.members, h)
		}
		m.rounds = append(m.rounds, x)
	}
}

// turns forces a round, and waits until all members have completed it, again and again.
func (x *moveRounds) turns(m *moveWorkload) {
	last := uint64(0)
	for !m.end.Load() && m.ctx.Err() == nil {
		if err := x.op.Force(m.ctx, "another"); err != nil {
			m.failed("force a round of %s: %v", x.name, err)
			return
		}
		for _, h := range x.members {
			if !h.awaits(m, last) {
				return
			}
		}
		last = max(x.members[0].last(), x.members[1].last(), x.members[2].last())
		x.done.Add(1)
		select { // there are others who want to get on
		case <-m.ctx.Done():
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func (h *moveMember) last() uint64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.epoch
}

// awaits waits for a complete round above an epoch.
func (h *moveMember) awaits(m *moveWorkload, above uint64) bool {
	for {
		h.mu.Lock()
		epoch, result, violation := h.epoch, h.result, h.violation
		h.mu.Unlock()
		if violation != "" {
			m.failed("%s", violation)
			return false
		}
		if epoch > above {
			if result != "" && result != fmt.Sprint(epoch) { // it has none if the member heard of the end by the next round
				m.failed("round %d has the result %q", epoch, result)
			}
			return true
		}
		select {
		case <-h.changed:
		case <-m.ctx.Done():
			return false
		}
	}
}

// roundsProgress waits until each process has gone through two more rounds.
func (m *moveWorkload) roundsProgress() {
	m.t.Helper()
	var until []int64
	for _, x := range m.rounds {
		until = append(until, x.done.Load()+2)
	}
	end := time.Now().Add(eventLimit)
	for i, x := range m.rounds {
		for x.done.Load() < until[i] {
			if m.t.Failed() {
				m.t.FailNow()
			}
			if time.Now().After(end) {
				s, err := x.op.Describe(m.ctx)
				m.t.Fatalf("%s does not go on after %d rounds: %+v, %v", x.name, x.done.Load(), s, err)
			}
			time.Sleep(5 * time.Millisecond)
		}
	}
}
