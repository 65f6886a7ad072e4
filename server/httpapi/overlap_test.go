package httpapi

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/signalbox-dev/signalbox/server/servertest"
	"github.com/signalbox-dev/signalbox/server/servertest/await"
	"github.com/signalbox-dev/signalbox/server/servertest/form"
)

// reliedHold is a lock that was relied on, by the monotonic clock of the machine in nanoseconds.
type reliedHold struct {
	Name         string
	Token        int64
	Began, Ended int64
	who          string
}

// front is an address that stays while the gateway behind it changes. Its bytes pass a valve.
type front struct {
	net.Listener
	*valve
	to  atomic.Pointer[gatewayProcess]
	all sync.WaitGroup
}

func newFront(t *testing.T, g *gatewayProcess) *front {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f := &front{Listener: l, valve: newValve()}
	f.to.Store(g)
	f.all.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			to, err := net.Dial("tcp", strings.TrimPrefix(f.to.Load().url, "http://"))
			if err != nil {
				_ = c.Close()
				continue
			}
			for _, pair := range [][2]net.Conn{{c, to}, {to, c}} {
				f.all.Go(func() {
					_, err := io.Copy(pair[1], valveConn{pair[0], f.valve})
					if half, ok := pair[1].(*net.TCPConn); ok && err == nil {
						_ = half.CloseWrite() // and the other direction goes on
						return
					}
					_, _ = pair[0].Close(), pair[1].Close()
				})
			}
		}
	})
	return f
}

func (f *front) url() string { return "http://" + f.Addr().String() }

// monotonic is the clock of reliedHold.
func monotonic() int64 {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts)
	return ts.Nano()
}

// TestNoTwoRely: the clients of all languages, callers by raw HTTP and streams, some of which half-close,
// take turns at locks through two gateways of three instances, while gateways are killed and stopped,
// their links stand still, and instances are killed and cut off. By one clock nobody relies on a lock
// while another one does, tokens rise, and in the end nothing is held.
func TestNoTwoRely(t *testing.T) {
	t.Parallel()
	for _, program := range []string{"python3", "node"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skip(err)
		}
	}
	lasts, many := sized(4*time.Second, 8*time.Second, 200*time.Second), form.Of(4, 9)
	const locks = 5
	cluster := servertest.StartCluster(t, 3, servertest.RealTime())
	fronts := []*front{newFront(t, startGateway(t, cluster.Addrs()...)), newFront(t, startGateway(t, cluster.Addrs()...))}
	addresses := []string{fronts[0].url(), fronts[1].url()}
	folder, err := filepath.Abs("../../client")
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var holds []reliedHold
	var all sync.WaitGroup
	ctx, stop := context.WithTimeout(t.Context(), lasts)
	defer stop()
	seconds, tasks := fmt.Sprint(lasts.Seconds()), fmt.Sprint(many)
	for who, args := range map[string][]string{
		"threads": {"python3", "testdata/holder.py", folder + "/python", "threads", seconds, tasks, fmt.Sprint(locks)},
		"tasks":   {"python3", "testdata/holder.py", folder + "/python", "tasks", seconds, tasks, fmt.Sprint(locks)},
		"js":      {"node", "testdata/holder.mjs", folder + "/js", seconds, tasks, fmt.Sprint(locks)},
	} {
		cmd := exec.Command(args[0], append(args[1:], addresses...)...)
		cmd.Env, cmd.Stderr = append(os.Environ(), "PYTHONDONTWRITEBYTECODE=1"), os.Stderr
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		all.Go(func() {
			for lines := bufio.NewScanner(out); lines.Scan(); {
				h := reliedHold{who: who}
				if err := json.Unmarshal(lines.Bytes(), &h); err != nil {
					t.Errorf("%s says %s", who, lines.Bytes())
				}
				mu.Lock()
				holds = append(holds, h)
				mu.Unlock()
			}
			if err := cmd.Wait(); err != nil {
				t.Errorf("%s ends with %v", who, err)
			}
		})
	}
	note := func(h reliedHold) {
		mu.Lock()
		defer mu.Unlock()
		holds = append(holds, h)
	}
	for c := range many {
		all.Go(func() { turnsOfCaller(ctx, t, addresses, c, locks, note) })
		all.Go(func() { turnsOfStream(ctx, t, addresses, c, locks, note) })
	}
	for n := 0; ctx.Err() == nil; n++ {
		f, i := fronts[rand.N(2)], rand.N(3)
		switch n % 5 {
		case 0:
			g := f.to.Load()
			_ = g.cmd.Process.Signal(syscall.SIGSTOP)
			time.Sleep(rand.N(7 * time.Second))
			_ = g.cmd.Process.Signal(syscall.SIGCONT)
		case 1:
			f.close()
			time.Sleep(rand.N(3 * time.Second))
			f.open()
		case 2:
			f.to.Load().signal(syscall.SIGKILL)
			f.to.Store(startGateway(t, cluster.Addrs()...))
		case 3:
			cluster.Isolate(i)
			time.Sleep(rand.N(4 * time.Second))
			cluster.HealAll()
		case 4:
			cluster.Kill(i)
			time.Sleep(rand.N(3 * time.Second))
			cluster.Restart(i)
		}
		time.Sleep(rand.N(2 * time.Second))
	}
	all.Wait()
	for _, f := range fronts {
		_ = f.Close()
	}
	compareHolds(t, holds)
	s := openSite(t, cluster.Instance(0))
	for i := range locks { // what was not given back ends with its ttl
		await.True(t, "the end of what is held", func() bool {
			return s.ask("GET", fmt.Sprintf("/v1/locks/turns-%d", i), "", "").doc["exists"] == false
		})
	}
}

// compareHolds fails the test if two holds of a name overlap, or a later one has no higher token.
func compareHolds(t *testing.T, holds []reliedHold) {
	slices.SortFunc(holds, func(a, b reliedHold) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Began, b.Began))
	})
	count := make(map[string]int)
	var last reliedHold
	for _, h := range holds {
		count[h.who]++
		if last.Name == h.Name {
			if h.Began < last.Ended {
				t.Errorf("%s is relied on by %s with token %d while %s does with %d, for %s", h.Name, h.who, h.Token, last.who,
					last.Token, time.Duration(last.Ended-h.Began))
			}
			if h.Token <= last.Token {
				t.Errorf("%s: token %d of %s after %d of %s", h.Name, h.Token, h.who, last.Token, last.who)
			}
		}
		if last.Name != h.Name || h.Ended > last.Ended {
			last = h
		}
	}
	t.Logf("%d holds: %v", len(holds), count)
	for _, who := range []string{"threads", "tasks", "js", "caller", "stream"} {
		if count[who] == 0 && (form.Is(form.Long) || len(holds) == 0) { // in a few seconds of faults some may have no luck
			t.Errorf("%s held nothing", who)
		}
	}
}

// turnsOfCaller takes turns by requests, each to any gateway, with a session for each hold.
func turnsOfCaller(ctx context.Context, t *testing.T, addresses []string, caller, locks int, note func(reliedHold)) {
	web := &http.Client{Transport: &http.Transport{}, Timeout: 15 * time.Second}
	defer web.CloseIdleConnections()
	ask := func(method, path, session string) (*answer, error) {
		s := &site{t: t, url: addresses[rand.N(len(addresses))], web: web}
		return s.try(ctx, method, path, session, "")
	}
	for turn := 0; ctx.Err() == nil; turn++ {
		session := fmt.Sprintf("turns-caller-%d-%d", caller, turn)
		h := reliedHold{Name: fmt.Sprintf("turns-%d", (caller+turn)%locks), who: "caller"}
		var until int64
		for end := time.Now().Add(rand.N(4 * time.Second)); ctx.Err() == nil; { // acquires, and renews by repeating it
			sent := monotonic()
			a, err := ask("POST", "/v1/locks/"+h.Name+"?ttl=5s&wait=2s", session)
			now := monotonic()
			switch {
			case h.Token != 0 && now < until:
				h.Ended = now
			case h.Token != 0: // it has stopped already
				h.Ended = until
			}
			if err == nil && a.status == 200 && (h.Token == 0 || now < until) {
				if said := a.number("waited_ms") + a.number("expires_in_ms"); h.Token == 0 {
					if h.Token, until = a.number("token"), sent+said*1e6; now >= until {
						break
					}
					h.Began, h.Ended = now, now
				} else if a.number("token") != h.Token {
					t.Errorf("the repeat of %d has token %d", h.Token, a.number("token"))
				} else {
					until = max(until, sent+said*1e6)
				}
			}
			if err == nil && a.status >= 400 && a.status < 500 || time.Now().After(end) || h.Token != 0 && now >= until {
				break
			}
			time.Sleep(rand.N(300 * time.Millisecond))
		}
		if h.Ended != 0 {
			note(h)
		}
		if rand.N(3) > 0 { // else it is gone, and its session ends by itself
			_, _ = ask("DELETE", "/v1/session", session)
		}
	}
}

// turnsOfStream takes turns by streams, and counts from the event that it has read. Sometimes it stops,
// closes its side alone, and reads to the end.
func turnsOfStream(ctx context.Context, t *testing.T, addresses []string, caller, locks int, note func(reliedHold)) {
	for turn := 0; ctx.Err() == nil; turn++ {
		h := reliedHold{Name: fmt.Sprintf("turns-%d", (caller+turn)%locks), who: "stream"}
		conn, err := net.Dial("tcp", strings.TrimPrefix(addresses[rand.N(len(addresses))], "http://"))
		if err != nil {
			time.Sleep(50 * time.Millisecond)
			continue
		}
		_ = conn.SetDeadline(time.Now().Add(15 * time.Second))
		quit := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Now()) })
		_, _ = fmt.Fprintf(conn, "POST /v1/locks/%s?ttl=5s&wait=5s HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n", h.Name)
		if resp, err := http.ReadResponse(bufio.NewReader(conn), nil); err == nil && resp.StatusCode == 200 {
			var until int64
			closed := false
			for e := (&events{t: t, lines: bufio.NewScanner(resp.Body)}); ; {
				event, d := e.next()
				now := monotonic()
				if h.Token != 0 && !closed {
					h.Ended = min(now, until)
				}
				if event == "queued" || event == "preempt" {
					continue
				}
				if event != "acquired" && event != "alive" || h.Token != 0 && now >= until {
					break
				}
				sent, err := time.Parse(time.RFC3339, fmt.Sprint(d["time"]))
				if err != nil {
					t.Error(err)
					break
				}
				if time.Since(sent) > 500*time.Millisecond { // nothing is promised to a late reader
					break
				}
				a := &answer{t: t, doc: d}
				if h.Token == 0 {
					h.Token, h.Began, h.Ended = a.number("token"), now, now
				}
				until = now + a.number("expires_in_ms")*1e6
				if rand.N(4) == 0 {
					h.Ended, closed = monotonic(), true // it stops before; TestHalfClose has one that does not
					_ = conn.(*net.TCPConn).CloseWrite()
				} else if rand.N(3) == 0 {
					h.Ended = monotonic()
					break
				}
			}
			if h.Token != 0 {
				note(h)
			}
		}
		quit()
		_ = conn.Close()
	}
}
