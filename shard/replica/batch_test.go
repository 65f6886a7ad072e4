package replica

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard"
	"github.com/signalbox-dev/signalbox/shard/replica/engine"
)

func TestEveryRequestIsAnsweredOnceAndInOrder(t *testing.T) {
	t.Parallel()
	h := openHost(t, HostConfig{})
	s, r := startOne(t, h, nil)
	populate(t, s)
	const callers, requests = 64, 40
	var wg sync.WaitGroup
	list := make([]*caller, callers)
	for i := range list {
		list[i] = newCaller(t, s, r, uint64(i+1), 60_000)
	}
	for i, c := range list {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for n := range requests {
				c.create(fmt.Sprintf("%d-%d", i, n))
			}
		}()
	}
	wg.Wait()
	r.await("all answers", func() bool { return len(r.results) == callers*(requests+1) })
	eventually(t, "an empty queue", func() bool { // the leader's own commands are in it too, at any time
		st := s.Stats()
		return st.InFlight == 0 && st.WaitingBytes == 0
	})
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range list {
		last := 0
		for n := range requests {
			res := r.results[Origin{Conn: c.conn, Request: uint64(n + 2), Kind: protocol.KindCreate}]
			if len(res) != 1 || res[0].failed || res[0].status != protocol.StatusOK {
				t.Fatalf("request %d of connection %d has outcomes %+v", n, c.conn, res)
			}
			if res[0].order <= last {
				t.Errorf("request %d of connection %d was answered out of order", n, c.conn)
			}
			last = res[0].order
		}
	}
	st := s.Stats()
	if st.Batches >= st.Commands {
		t.Errorf("%d commands went in %d batches: nothing was gathered", st.Commands, st.Batches)
	}
}

// faultGate is a place for faults between the proposer and the engine.
type faultGate struct {
	mu    sync.Mutex
	fault func(next func([]byte) (engine.Proposal, error), entry []byte) (engine.Proposal, error)
}

func (f *faultGate) set(fault func(next func([]byte) (engine.Proposal, error), entry []byte) (engine.Proposal, error)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fault = fault
}

func (f *faultGate) via(next func([]byte) (engine.Proposal, error), entry []byte) (engine.Proposal, error) {
	f.mu.Lock()
	fault := f.fault
	f.mu.Unlock()
	if fault == nil {
		return next(entry)
	}
	return fault(next, entry)
}

func TestFullQueueRejects(t *testing.T) {
	t.Parallel()
	h := openHost(t, HostConfig{})
	var f faultGate
	s, r := startOne(t, h, func(c *ShardConfig) {
		c.MaxOpenBytes, c.MaxBatchBytes, c.MaxBatchCommands, c.InFlight = 20_000, 4_000, 3, 2
		c.proposeVia = f.via
	})
	populate(t, s)
	c := newCaller(t, s, r, 1, 60_000)
	release := make(chan struct{})
	entered := make(chan struct{}, 1)
	var most int
	f.set(func(next func([]byte) (engine.Proposal, error), entry []byte) (engine.Proposal, error) {
		select {
		case entered <- struct{}{}:
		default:
		}
		<-release
		most = max(most, len(entry))
		return next(entry)
	})
	body := make([]byte, 1000)
	accepted, refused := 0, 0
	for refused < 3 {
		switch st := s.Submit(shard.Command{Kind: shard.CmdCreate, Node: testNode, Body: body},
			Origin{Conn: 1, Request: uint64(100 + accepted)}); st {
		case protocol.StatusOK:
			accepted++
		case protocol.StatusOverloaded:
			refused++
		default:
			t.Fatal(st)
		}
		if accepted == 1 {
			<-entered // one batch is with the proposer, the rest is in the queue
		}
		if accepted > 100 {
			t.Fatal("the queue takes everything")
		}
	}
	if accepted < 18 || accepted > 23 {
		t.Errorf("%d commands of 1,000 bytes were accepted with room for 20,000 bytes", accepted)
	}
	close(release)
	r.await("all accepted to be answered", func() bool { return len(r.results) == accepted+1 })
	if most > 3*1100 {
		t.Errorf("a batch of %d bytes was proposed", most)
	}
	if got := s.Stats().Overloaded; got != 3 {
		t.Errorf("%d refusals counted", got)
	}
	f.set(nil)
	c.request = 1000
	c.mustCreate("after")
}

func TestClosedShardRejects(t *testing.T) {
	t.Parallel()
	h := openHost(t, HostConfig{})
	s, r := startOne(t, h, nil)
	populate(t, s)
	c := newCaller(t, s, r, 1, 60_000)
	c.mustCreate("before")
	if err := h.StopShard(1); err != nil {
		t.Fatal(err)
	}
	if st := s.Submit(shard.Command{Kind: shard.CmdCreate}, Origin{Conn: 1, Request: 99}); st != protocol.StatusUnavailable {
		t.Errorf("a stopped shard says %v", st)
	}
	if err := s.ProposeInternal(timeout(t), shard.Command{Kind: shard.CmdNodeDrop}); protocol.StatusOf(err) != protocol.StatusUnavailable {
		t.Errorf("a stopped shard says %v", err)
	}
	if barrier(s) {
		t.Error("a stopped shard makes barriers")
	}
	s.Ping(1, 1)
	s.ConnClosed(1, time.Second, protocol.LinkClosed)
	s.ReceiveMessage(2, []byte{1})
}
