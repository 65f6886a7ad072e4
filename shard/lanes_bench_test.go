package shard

import (
	"fmt"
	"testing"

	"github.com/signalbox-dev/signalbox/protocol"
)

// laneMachine has one semaphore with options and so many waiters behind an owner of all units. ask
// says what the waiter with a number asks for.
func laneMachine(waiters int, limit uint64, o *protocol.SemaphoreOptions, ask func(i int) *protocol.AcquireOptions) *benchMachine {
	x := newBenchMachine(waiters + 1)
	x.begin()
	m := protocol.Create{Head: x.head(0), Name: []byte("q"), Limit: limit, Options: o}
	x.body = protocol.AppendBody(x.body[:0], &m)
	x.command(CmdCreate)
	x.commit()
	for i := 0; i <= waiters; {
		x.begin()
		for range min(500, waiters+1-i) {
			a := protocol.Acquire{Head: x.head(i), Name: []byte("q"), Count: 1, Timeout: protocol.Forever}
			if i == 0 {
				a.Count = limit
			} else if ask != nil {
				a.Options = ask(i)
			}
			x.body = a.AppendBody(x.body[:0])
			x.command(CmdAcquire)
			i++
		}
		x.commit()
	}
	return x
}

func (x *benchMachine) queueOf(name string) *semaphore {
	b := &x.m.buckets[protocol.Bucket(1, []byte(name), uint32(len(x.m.buckets)))]
	return x.m.semaphores.lookup(b, 1, []byte(name))
}

// BenchmarkExamine is an examination of 1,024 lanes that grants nothing: of keys, and of labels of
// slots that are all held but one, which nobody wants.
func BenchmarkExamine(b *testing.B) {
	keys := laneMachine(1024, 1, &protocol.SemaphoreOptions{Policy: protocol.PolicyFair}, func(i int) *protocol.AcquireOptions {
		return &protocol.AcquireOptions{Key: fmt.Append(nil, i)}
	})
	labelled := &protocol.SemaphoreOptions{Policy: protocol.PolicyFair}
	for i := range 1023 {
		labelled.Slots = append(labelled.Slots, protocol.Slot{Name: fmt.Sprint(i), Labels: []string{"a"}})
	}
	labelled.Slots = append(labelled.Slots, protocol.Slot{Name: "free"})
	slots := laneMachine(1024, 1024, labelled, func(i int) *protocol.AcquireOptions {
		return &protocol.AcquireOptions{Key: fmt.Append(nil, i), Labels: []string{"a"}}
	})
	slots.begin()
	a := protocol.Acquire{Head: slots.head(0), Name: []byte("q"), Count: 1023, Timeout: protocol.Forever}
	slots.body = a.AppendBody(slots.body[:0])
	slots.command(CmdAcquire)
	slots.commit()
	for name, x := range map[string]*benchMachine{"keys": keys, "slots": slots} {
		b.Run(name, func(b *testing.B) {
			s := x.queueOf("q")
			if s.waiters.n != 1024 {
				b.Fatalf("%d waiters", s.waiters.n)
			}
			b.ReportAllocs()
			for b.Loop() {
				s.promote(x.m)
			}
		})
	}
}

// BenchmarkFairGrant is a release, a grant to the next of 100,000 waiters of 100 keys, and the wait
// of the session that released.
func BenchmarkFairGrant(b *testing.B) {
	const waiters = 100_000
	x := laneMachine(waiters, 1, &protocol.SemaphoreOptions{Policy: protocol.PolicyFair}, func(i int) *protocol.AcquireOptions {
		return &protocol.AcquireOptions{Key: fmt.Append(nil, i%100)}
	})
	s := x.queueOf("q")
	at := make(map[uint64]int, waiters+1)
	for i, id := range x.sessions {
		at[id] = i
	}
	b.ReportAllocs()
	for b.Loop() {
		i := at[s.owners.first.session.id]
		x.begin()
		x.release(i, []byte("q"))
		a := protocol.Acquire{Head: x.head(i), Name: []byte("q"), Count: 1, Timeout: protocol.Forever,
			Options: &protocol.AcquireOptions{Key: fmt.Append(nil, i%100)}}
		x.body = a.AppendBody(x.body[:0])
		x.command(CmdAcquire)
		x.commit()
	}
}

// BenchmarkAlter changes the policy of a semaphore with 10,000 waiters.
func BenchmarkAlter(b *testing.B) {
	x := laneMachine(maxAlteredWaiters, 1, &protocol.SemaphoreOptions{Policy: protocol.PolicyFair}, func(i int) *protocol.AcquireOptions {
		return &protocol.AcquireOptions{Key: fmt.Append(nil, i%100), Priority: uint8(i % 10)}
	})
	policies := []protocol.QueuePolicy{protocol.PolicyPriority, protocol.PolicyFair}
	for i := 0; b.Loop(); i++ {
		x.begin()
		m := protocol.Alter{Head: x.head(0), Name: []byte("q"), Fields: protocol.AlterPolicy,
			Options: protocol.SemaphoreOptions{Policy: policies[i%2]}}
		x.body = protocol.AppendBody(x.body[:0], &m)
		x.command(CmdAlter)
		x.commit()
	}
}
