package leader

import (
	"fmt"
	"syscall"
	"testing"

	"github.com/signalbox-dev/signalbox/protocol"
)

// pair is a home and a shard that holds something of each of its sessions.
type pair struct {
	home, remote *harness
	ids          []uint64
	bytes        int // that the home sent
	logged       int // commands of the other shard
}

// exchange has time pass and both leaders hear each other.
func (p *pair) exchange(ticks int) {
	for range ticks {
		for _, x := range []struct {
			w, to *harness
			from  uint64
		}{{p.remote, p.home, 2}, {p.home, p.remote, 1}} {
			x.w.now += 100
			x.w.l.Tick(x.w.now, x.w.lastHeard, 0, false)
			r := x.w.l.Take()
			for _, c := range r.Commands {
				x.w.l.Done(x.w.now, c.ID, true)
				p.logged++
			}
			if r.Barrier != 0 {
				x.w.l.BarrierDone(x.w.now, r.Barrier, true, x.w)
				p.deliver(x.w.l.Take(), x.to, x.from)
			}
			p.deliver(r, x.to, x.from)
		}
	}
}

func (p *pair) deliver(r *Ready, to *harness, from uint64) {
	for _, m := range r.Messages {
		if from == 1 {
			p.bytes += len(m.Bytes)
		}
		to.l.Receive(to.now, from, m.Bytes, to)
	}
}

// say has the home tell of all sessions, as fast as the other shard confirms.
func (p *pair) say(v sessionState) {
	for i, id := range p.ids {
		e := p.home.table[id]
		e.state = v
		p.home.table[id] = e
		p.home.l.subscribers.notifyAlive(id, v, e.epoch, e.description)
		if i%5_000 == 4_999 { // a second's
			p.exchange(10)
		}
	}
	p.exchange(20)
}

func newPair(n uint64, tracks int) *pair {
	p := &pair{home: newHarness(), remote: newHarness()}
	p.remote.l.cfg.Shard = 2
	p.remote.tracks = map[uint64]int{}
	for i := range n {
		id := protocol.MakeSessionID(0, 1, 1_000+i)
		p.ids = append(p.ids, id)
		p.home.table[id] = sessionStatus{epoch: 1, description: "worker-17.example.net"}
		p.remote.remotes[id] = sessionStatus{epoch: 1, description: "worker-17.example.net"}
		p.remote.tracks[id] = tracks
	}
	p.home.l.Start(p.home.now, 1<<40, 0, nil)
	p.remote.l.Start(p.remote.now, 1<<40, 0, p.ids)
	for range 400 {
		p.exchange(10)
		if p.remote.l.Stats().Unsubscribed == 0 {
			return p
		}
	}
	panic("the sessions are not subscribed")
}

// used is the processor time of this process so far, in ns: other processes do not count.
func used(b *testing.B) int64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return u.Utime.Nano() + u.Stime.Nano()
}

// BenchmarkDetachedNotify is what it costs that a home tells another shard of 100,000 sessions that
// they are detached, and then that they are attached again: of sessions without instances of
// tracks, for which nothing is logged, and of such with them.
func BenchmarkDetachedNotify(b *testing.B) {
	const n = 100_000
	for _, tracks := range []int{0, 1} {
		b.Run(fmt.Sprintf("tracks=%d", tracks), func(b *testing.B) {
			p := newPair(n, tracks)
			p.bytes, p.logged = 0, 0
			b.ReportAllocs()
			began := used(b)
			for b.Loop() {
				p.say(stateDetached)
				p.say(stateAttached)
			}
			took := used(b) - began
			all := float64(b.N) * 2 * n
			b.ReportMetric(float64(p.bytes)/all, "B/news")
			b.ReportMetric(float64(took)/all, "cpu-ns/news")
			b.ReportMetric(float64(p.logged)/all, "entries/news")
			if s := p.remote.l.Stats(); s.LostSubscriptions > 0 || s.RemoteSessions != n ||
				(p.logged > 0) != (tracks > 0) {
				b.Fatalf("%+v, %d logged", s, p.logged)
			}
		})
	}
}

// BenchmarkDetachedReplies is what it costs to subscribe to 100,000 sessions again, at a home whose
// new leader has them all attached, or detached.
func BenchmarkDetachedReplies(b *testing.B) {
	const n = 100_000
	for _, v := range []sessionState{stateAttached, stateDetached} {
		b.Run(map[sessionState]string{stateAttached: "attached", stateDetached: "detached"}[v], func(b *testing.B) {
			p := newPair(n, 0)
			for _, id := range p.ids {
				e := p.home.table[id]
				e.state = v
				p.home.table[id] = e
			}
			p.bytes = 0
			b.ReportAllocs()
			began := used(b)
			for b.Loop() {
				p.remote.l.remotes.subscriptions[1].resubscribe()
				for p.remote.l.Stats().Unsubscribed > 0 {
					p.exchange(1)
				}
			}
			took := used(b) - began
			all := float64(b.N) * n
			b.ReportMetric(float64(p.bytes)/all, "B/session")
			b.ReportMetric(float64(took)/all, "cpu-ns/session")
		})
	}
}
