package discovery

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/server/servertest/form"
)

// membersEvent is what a watch says of so many members.
func membersEvent(n int) *client.Event {
	ev := &client.Event{Kind: client.EventChanged}
	for i := range n {
		ev.Added = append(ev.Added, client.Owner{Token: uint64(i + 1), Count: 1,
			Data: fmt.Appendf(nil, `{"addr":"10.%d.%d.%d:80","zone":"SAS","meta":{"version":"7"}}`, i>>16, i>>8&255, i&255)})
	}
	return ev
}

func allocated() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// TestCopyOfThousands: a copy of 5,000 members takes at most 4 MB, with a view. One of 100,000
// works as well.
func TestCopyOfThousands(t *testing.T) {
	bounds := map[int]uint64{5000: 4 << 20}
	if form.Is(form.Full) {
		bounds[100_000] = 80 << 20
	}
	for n, most := range bounds {
		before := allocated()
		now := time.Unix(0, 0)
		l := newList(now, defaultHold)
		l.event(now, membersEvent(n))
		l.event(now, &client.Event{Kind: client.EventSynced})
		v := l.current().view(caller{zone: "SAS", subset: DefaultSubset, panicShare: defaultPanicShare, id: 7})
		if size := allocated() - before; size > most {
			t.Errorf("a copy of %d members takes %d bytes", n, size)
		} else {
			t.Logf("a copy of %d members takes %d bytes", n, size)
		}
		if len(v.All) != n || len(v.Used) != DefaultSubset {
			t.Errorf("of %d members %d are shown and %d used", n, len(v.All), len(v.Used))
		}
		now = now.Add(time.Minute)
		l.event(now, &client.Event{Kind: client.EventChanged, Removed: []client.Owner{{Token: 1}}})
		if len(l.current().all) != n-1 {
			t.Errorf("%d after one has gone", len(l.current().all))
		}
		runtime.KeepAlive(l)
	}
}

// TestConnectionsAreSpread: 1,000 callers of 5,000 endpoints have 100 connections each, which are
// spread as if each caller drew lots. The busiest endpoint has about twice the average then: 37 to
// 41 with most draws, sometimes more.
func TestConnectionsAreSpread(t *testing.T) {
	t.Parallel()
	const endpoints, callers = 5000, 1000
	r := rand.New(rand.NewPCG(1, 7))
	now := time.Unix(0, 0)
	l := newList(now, defaultHold)
	l.event(now, membersEvent(endpoints))
	l.event(now, &client.Event{Kind: client.EventSynced})
	count := map[*Endpoint]int{}
	for range callers {
		used, _ := choose(l.current().all, caller{subset: DefaultSubset, panicShare: defaultPanicShare, id: r.Uint64()})
		if len(used) != DefaultSubset {
			t.Fatalf("a caller uses %d", len(used))
		}
		for _, e := range used {
			count[e]++
		}
	}
	const average = callers * DefaultSubset / endpoints
	busiest, variance := 0, 0.0
	for _, e := range l.current().all {
		busiest = max(busiest, count[e])
		variance += float64((count[e]-average)*(count[e]-average)) / endpoints
	}
	t.Logf("the busiest of %d endpoints has %d connections, %d on average, variance %.1f", endpoints, busiest, average, variance)
	if lots := average * (1 - float64(DefaultSubset)/endpoints); variance > 1.1*lots || busiest > 2*average {
		t.Errorf("the busiest has %d connections, the variance is %.1f; %.1f is that of lots", busiest, variance, lots)
	}
}

// TestFleetFails: 5,000 members whose checks fail at once write that over a check's interval, once
// each, and callers go on by the panic rule.
func TestFleetFails(t *testing.T) {
	t.Parallel()
	const members = 5000
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		begin := time.Now()
		fails := begin.Add(time.Minute)
		var mu sync.Mutex
		perSecond, states := map[time.Duration]int{}, make([]State, members)
		var running sync.WaitGroup
		for i := range members {
			running.Go(func() {
				s := &status{written: Ready, writtenAt: begin}
				c := &checker{interval: DefaultCheckInterval, timeout: DefaultCheckTimeout, check: func(context.Context) error {
					if time.Now().Before(fails) {
						return nil
					}
					return errors.New("the database is away")
				}}
				c.repeat(ctx, func(err error) {
					now := time.Now()
					s.health.result(now, err)
					if due := s.due(""); due.IsZero() || due.After(now) {
						return
					}
					s.written, _ = s.now("", "")
					s.writtenAt = now
					mu.Lock()
					defer mu.Unlock()
					perSecond[now.Sub(fails)/time.Second]++
					states[i] = s.written
				})
			})
		}
		time.Sleep(5 * time.Minute)
		stop()
		running.Wait()
		sum := 0
		for second, n := range perSecond {
			sum += n
			if second < 4 || second > 11 || n > 1500 {
				t.Errorf("%d entries in second %d after the failure", n, second)
			}
		}
		t.Logf("entries by second after the failure: %v", perSecond)
		if sum != members {
			t.Errorf("%d entries of %d members", sum, members)
		}
		var all []*Endpoint
		for i, state := range states {
			all = append(all, &Endpoint{Addr: fmt.Sprintf("a%d:1", i), Weight: DefaultWeight, State: state})
		}
		if used, panics := choose(all, caller{panicShare: defaultPanicShare}); !panics || len(used) != members {
			t.Errorf("%d are used, panic %v", len(used), panics)
		}
	})
}
