package shard

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/signalbox-dev/signalbox/protocol"
)

// crowdedQueue is a semaphore whose sessions acquire again as soon as they have released, so that
// somebody of each key waits all the time.
type crowdedQueue struct {
	*benchMachine
	r       *rand.Rand
	of      map[uint64]int // sessions by id
	asked   []crowdedAsk   // by session
	owners  []int          // sessions
	last    int            // session that asked last
	granted func(session int)
}

type crowdedAsk struct {
	options protocol.AcquireOptions
	count   uint64
	arrival uint64
	waiting bool
}

func newCrowdedQueue(sessions int, seed uint64, limit uint64, o *protocol.SemaphoreOptions) *crowdedQueue {
	q := &crowdedQueue{benchMachine: newBenchMachine(sessions), r: rand.New(rand.NewPCG(seed, 3)),
		of: make(map[uint64]int), asked: make([]crowdedAsk, sessions)}
	for i, id := range q.sessions {
		q.of[id] = i
	}
	q.begin()
	m := protocol.Create{Head: q.head(0), Name: []byte("q"), Limit: limit, Options: o}
	q.body = protocol.AppendBody(q.body[:0], &m)
	q.command(CmdCreate)
	q.commit()
	return q
}

// acquire lets a session ask in the batch that is open.
func (q *crowdedQueue) acquire(session int, count uint64, o protocol.AcquireOptions) {
	q.last = session
	q.asked[session] = crowdedAsk{options: o, count: count, arrival: q.now, waiting: true}
	a := protocol.Acquire{Head: q.head(session), Name: []byte("q"), Count: count, Timeout: protocol.Forever, Options: &o}
	q.body = a.AppendBody(q.body[:0])
	q.command(CmdAcquire)
}

// apply applies the batch, and looks at the grants in their order.
func (q *crowdedQueue) apply() {
	q.commit()
	for i := range q.out.List {
		e := &q.out.List[i]
		session, known := q.of[e.Session]
		if e.Kind == EventReply { // of the last command, if it acquired at once
			session, known = q.last, true
		}
		if e.State == protocol.Acquired && known {
			q.owners = append(q.owners, session)
			q.granted(session)
			q.asked[session].waiting = false
		}
	}
}

// next takes a session that owns, at random.
func (q *crowdedQueue) next() int {
	at := q.r.IntN(len(q.owners))
	session := q.owners[at]
	q.owners[at] = q.owners[len(q.owners)-1]
	q.owners = q.owners[:len(q.owners)-1]
	return session
}

// fill lets session 0 own all units, and all others wait.
func (q *crowdedQueue) fill(limit uint64, ask func(session int) (uint64, protocol.AcquireOptions)) {
	q.granted = func(int) {}
	q.begin()
	q.acquire(0, limit, protocol.AcquireOptions{})
	for i := 1; i < len(q.sessions); i++ {
		count, o := ask(i)
		q.acquire(i, count, o)
	}
	q.commit()
	q.asked[0].waiting = false
	q.begin()
	q.release(0, []byte("q"))
}

// TestFairBound: while two keys wait all the time, the units that they were granted per weight
// differ by at most the sum of their largest requests per weight, in any stretch of time.
func TestFairBound(t *testing.T) {
	for seed := uint64(1); seed <= 100; seed++ {
		r := rand.New(rand.NewPCG(seed, 4))
		keys, limit := 2+r.IntN(4), uint64(1+r.IntN(6))
		each := int(limit) + 2
		o := &protocol.SemaphoreOptions{Policy: protocol.PolicyFair}
		weights := make([]float64, keys)
		for k := range keys {
			w := uint64(1 + r.IntN([]int{2, 10, 1000}[r.IntN(3)]))
			weights[k] = float64(w)
			o.Weights = append(o.Weights, protocol.Weight{Key: fmt.Append(nil, k), Weight: w})
		}
		q := newCrowdedQueue(1+keys*each, seed, limit, o)
		ask := func(session int) (uint64, protocol.AcquireOptions) {
			return 1 + uint64(r.IntN(int(limit))), protocol.AcquireOptions{Key: fmt.Append(nil, (session-1)%keys)}
		}
		q.fill(limit, ask)
		share, largest := make([]float64, keys), make([]float64, keys)
		for i := 1; i < len(q.asked); i++ {
			k := (i - 1) % keys
			largest[k] = max(largest[k], float64(q.asked[i].count)/weights[k])
		}
		type ends struct{ low, high float64 }
		between := make(map[[2]int]ends)
		grants := 0
		q.granted = func(session int) {
			k := (session - 1) % keys
			share[k] += float64(q.asked[session].count) / weights[k]
			grants++
			for a := range keys {
				for b := range a {
					e, d := between[[2]int{a, b}], share[a]-share[b]
					e.low, e.high = min(e.low, d), max(e.high, d)
					between[[2]int{a, b}] = e
					if most := largest[a] + largest[b]; e.high-e.low > most+float64(grants)*math.Exp2(-19) {
						t.Fatalf("seed %d: the shares of keys with weights %v and %v parted by %v, the bound is %v",
							seed, weights[a], weights[b], e.high-e.low, most)
					}
				}
			}
		}
		q.apply()
		for range 400 {
			q.begin()
			s := q.next()
			q.benchMachine.release(s, []byte("q"))
			count, o := ask(s)
			k := (s - 1) % keys
			largest[k] = max(largest[k], float64(count)/weights[k])
			q.acquire(s, count, o)
			q.apply()
		}
		if grants < 300 {
			t.Fatalf("seed %d: %d grants", seed, grants)
		}
	}
}

// TestAgingBound: with aging a waiter is passed by only by requests that arrive less than nine times
// the aging after it.
func TestAgingBound(t *testing.T) {
	passed := 0
	for seed := uint64(1); seed <= 100; seed++ {
		r := rand.New(rand.NewPCG(seed, 5))
		const aging = 1000
		q := newCrowdedQueue(20, seed, 2, &protocol.SemaphoreOptions{Policy: protocol.PolicyPriority, Aging: aging})
		ask := func(int) (uint64, protocol.AcquireOptions) {
			return 1 + uint64(r.IntN(2)), protocol.AcquireOptions{Priority: uint8(1 + r.IntN(10))}
		}
		q.fill(2, ask)
		q.granted = func(session int) {
			mine := q.asked[session]
			for i := range q.asked {
				other := q.asked[i]
				if i == session || !other.waiting || other.arrival >= mine.arrival {
					continue
				}
				passed++
				if after := mine.arrival - other.arrival; after >= protocol.MaxPriority*aging {
					t.Fatalf("seed %d: a waiter is passed by by a request that arrived %d ms after it", seed, after)
				}
			}
		}
		q.apply()
		for range 400 {
			q.now += uint64(r.IntN(aging))
			q.begin()
			s := q.next()
			q.benchMachine.release(s, []byte("q"))
			count, o := ask(s)
			q.acquire(s, count, o)
			q.apply()
		}
	}
	if passed == 0 {
		t.Error("no waiter was ever passed by")
	}
}
