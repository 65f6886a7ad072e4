package httpapi

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/server/httpapi/machine"
	"github.com/signalbox-dev/signalbox/server/servertest"
	"github.com/signalbox-dev/signalbox/server/servertest/form"
)

// ledger is who believes to hold a name, on one clock.
type ledger struct {
	mu      sync.Mutex
	who     string
	token   int64
	until   time.Time // of a careful caller
	believe int       // grants so far
}

// granted notes a grant, or its renewal, that a caller has learned of now. It stops at until.
func (l *ledger) granted(t *testing.T, name, who string, token int64, until time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if l.who != who && now.Before(until) && now.Before(l.until) {
		t.Errorf("%s: %s believes in token %d while %s believes in %d for another %s", name, who, token, l.who,
			l.token, time.Until(l.until))
	}
	if token < l.token && now.Before(until) {
		t.Errorf("%s: %s believes in token %d after %d of %s", name, who, token, l.token, l.who)
	}
	if token >= l.token {
		l.who, l.token, l.until = who, token, until
	}
	l.believe++
}

// gone notes that a caller does not believe any more.
func (l *ledger) gone(who string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.who == who {
		l.until = time.Time{}
	}
}

// TestBeliefsUnderFaults: callers and streams take turns at locks, a third of which have a bound
// and a third of which are preempted, while gateways are killed and stopped, and instances are
// killed and cut off. Callers, which count from when they sent a request, and streams, which count
// from the event that they read, never believe at once, and tokens rise.
func TestBeliefsUnderFaults(t *testing.T) {
	t.Parallel()
	form.SkipUntil(t, form.Long, "a minute of faults on three instances and two gateways")
	const locks, callers, streams, lasts = 6, 30, 30, time.Minute
	cluster := servertest.StartCluster(t, 3, servertest.RealTime())
	s, err := client.OpenSession(t.Context(), client.Config{Endpoints: cluster.Addrs()}, client.DefaultNode)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Client().CloseWithoutRelease()
	for i := 2; i < locks; i += 3 {
		if err := s.Create(t.Context(), fmt.Sprintf("l-%d", i), 1, nil,
			client.SemaphoreConfig{Preempt: client.PreemptAny}); err != nil {
			t.Fatal(err)
		}
	}
	var mu sync.Mutex // of gateways
	gateways := []*gatewayProcess{startGateway(t, cluster.Addrs()...), startGateway(t, cluster.Addrs()...)}
	pick := func() *gatewayProcess {
		mu.Lock()
		defer mu.Unlock()
		return gateways[rand.N(len(gateways))]
	}
	ctx, stop := context.WithTimeout(t.Context(), lasts)
	defer stop()
	var ledgers [locks]ledger
	query := func(i int) string {
		return fmt.Sprintf("/v1/locks/l-%d?ttl=5s&wait=10s", i) + []string{"", "&hold=3s", "&count=1"}[i%3]
	}
	var all sync.WaitGroup
	for c := range callers {
		all.Go(func() {
			for turn := 0; ctx.Err() == nil; turn++ {
				who, i := fmt.Sprintf("caller-%d-%d", c, turn), (c+turn)%locks
				for ctx.Err() == nil { // acquires, and renews by repeating it
					sent := time.Now()
					a, err := pick().try(ctx, "POST", query(i), who, "")
					if err != nil || a.status >= 500 || a.status == 202 || a.status == 409 &&
						a.doc["code"] == "aborted" {
						time.Sleep(50 * time.Millisecond)
						continue
					}
					if a.status != 200 {
						break
					}
					left := time.Duration(a.number("waited_ms")+a.number("expires_in_ms")) * time.Millisecond
					ledgers[i].granted(t, fmt.Sprint("l-", i), who, a.number("token"), sent.Add(left))
					if rand.N(3) == 0 {
						break
					}
					time.Sleep(rand.N(time.Second))
				}
				ledgers[i].gone(who)
				if rand.N(2) == 0 { // else it is gone, and its session ends by itself
					_, _ = pick().try(ctx, "DELETE", "/v1/session", who, "")
				}
			}
		})
	}
	var notices, late atomic.Int64 // events of streams; those that the machine held back
	for c := range streams {
		all.Go(func() {
			for turn := 0; ctx.Err() == nil; turn++ {
				who, i := fmt.Sprintf("stream-%d-%d", c, turn), (c+turn)%locks
				one, cancel := context.WithTimeout(ctx, 12*time.Second)
				resp, err := pick().events(one, query(i), "")
				if err == nil {
					for e := (&events{t: t, lines: bufio.NewScanner(resp.Body)}); ; {
						event, d := e.next()
						if event == "queued" || event == "preempt" {
							continue
						}
						if event != "acquired" && event != "alive" {
							break // it has ended
						}
						a, from := &answer{t: t, doc: d}, time.Now()
						sent, err := time.Parse(time.RFC3339, fmt.Sprint(d["time"]))
						if err != nil {
							t.Error(err)
						}
						notices.Add(1)
						if from.Sub(sent) > machine.ExtraTTL/2 { // nothing is promised to a late caller
							late.Add(1)
							from = sent
						}
						ledgers[i].granted(t, fmt.Sprint("l-", i), who, a.number("token"),
							from.Add(time.Duration(a.number("expires_in_ms"))*time.Millisecond))
						if rand.N(3) == 0 {
							break
						}
					}
					ledgers[i].gone(who)
					cancel()
					_ = resp.Body.Close()
				}
				cancel()
			}
		})
	}
	for n := 0; ctx.Err() == nil; n++ {
		switch i, g := rand.N(2), rand.N(3); n % 4 {
		case 0:
			gateways[i].signal(syscall.SIGKILL)
			next := startGateway(t, cluster.Addrs()...)
			mu.Lock()
			gateways[i] = next
			mu.Unlock()
		case 1:
			gateways[i].signal(syscall.SIGSTOP)
			time.Sleep(rand.N(8 * time.Second))
			gateways[i].signal(syscall.SIGCONT)
		case 2:
			cluster.Kill(g)
			time.Sleep(rand.N(3 * time.Second))
			cluster.Restart(g)
		case 3:
			cluster.Isolate(g)
			time.Sleep(rand.N(5 * time.Second))
			cluster.HealAll()
		}
		time.Sleep(rand.N(2 * time.Second))
	}
	all.Wait()
	for i := range ledgers {
		t.Logf("l-%d: %d grants, the last token is %d", i, ledgers[i].believe, ledgers[i].token)
		if ledgers[i].believe == 0 {
			t.Errorf("nobody was granted l-%d", i)
		}
	}
	t.Logf("streams were told %d times, %d of them late", notices.Load(), late.Load())
	if notices.Load() == 0 {
		t.Error("no stream was told of a grant")
	}
}
