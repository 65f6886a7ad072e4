package discovery_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"io"
	"os"
	"os/exec"
	"runtime"
	"runtime/metrics"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/discovery"
	"github.com/signalbox-dev/signalbox/server/servertest"
	"github.com/signalbox-dev/signalbox/server/servertest/form"
)

// callersEnv makes the test binary a process of callers: ADDRESS COUNT.
const callersEnv = "SIGNALBOX_TEST_CALLERS"

// callersReport is what a process of callers says at its end.
type callersReport struct {
	Delays []time.Duration // from each change to the view of each caller
	Lists  []uint64        // a hash of the list that each caller has at the end
	Used   map[string]int  // callers that use an address
	Memory uint64          // bytes for each caller
	CPU    time.Duration   // since all had their first list
}

// TestManyCallers: callers in processes of their own, each with a client, have every change of a
// member in their view, and the server's list at the end. In the long form there are 1,000 of them
// in 20 processes, and 5,000 members. Then the log has the figures of that many, a copy takes at most
// 4 MB, and the callers are spread over the members.
func TestManyCallers(t *testing.T) {
	t.Parallel()
	processes, callers, members, changes := 2, 3, 120, 5
	long := form.Is(form.Long)
	if long {
		processes, callers, members, changes = 20, 50, 5000, 50
	}
	srv := servertest.Start(t, servertest.RealTime())
	ctx := t.Context()
	var c *client.Client
	var list []*discovery.Registration
	endpoint := func(i int, meta map[string]string) discovery.Endpoint {
		return discovery.Endpoint{Addr: fmt.Sprintf("10.0.%d.%d:80", i/250, i%250), Zone: "SAS", Meta: meta}
	}
	for i := range members {
		if i%500 == 0 { // a connection has at most so many sessions
			var err error
			c, err = client.Dial(ctx, srv.Addr())
			must(t, err)
			t.Cleanup(c.CloseWithoutRelease)
		}
		s, err := c.Session(ctx, "/default", client.Timeout(5*time.Minute))
		must(t, err)
		r, err := discovery.Register(ctx, s, "api", endpoint(i, nil))
		must(t, err)
		list = append(list, r)
	}
	var running []*callersProcess
	for range processes {
		running = append(running, startCallers(t, srv.Addr(), callers))
	}
	for _, p := range running {
		p.expect(t, "ready")
	}
	for n := range changes {
		meta := map[string]string{"at": strconv.FormatInt(time.Now().UnixNano(), 10)}
		if n == changes-1 {
			meta["last"] = "true"
		}
		i := n * 7 % members
		must(t, list[i].Update(ctx, endpoint(i, meta)))
		for _, p := range running {
			p.expect(t, "seen")
		}
	}
	node, err := c.Node(ctx, "/default")
	must(t, err)
	all, err := node.Service("api").List(ctx)
	must(t, err)
	view, err := discovery.ViewOf(all)
	must(t, err)
	want, used := hashOf(view), map[string]int{}
	var delays []time.Duration
	var cpu time.Duration
	for i, p := range running {
		var r callersReport
		must(t, json.Unmarshal([]byte(p.line(t)), &r))
		if len(r.Delays) != callers*changes {
			t.Errorf("process %d: its callers saw %d changes in all, want %d each", i, len(r.Delays), changes)
		}
		if len(r.Lists) != callers || slices.ContainsFunc(r.Lists, func(h uint64) bool { return h != want }) {
			t.Errorf("process %d: its callers have other lists than the server", i)
		}
		if long && r.Memory > 4<<20 {
			t.Errorf("process %d: a caller takes %d bytes", i, r.Memory)
		}
		for addr, n := range r.Used {
			used[addr] += n
		}
		delays, cpu = append(delays, r.Delays...), cpu+r.CPU
		t.Logf("process %d: %d bytes a caller", i, r.Memory)
	}
	busiest, sum := 0, 0
	for _, n := range used {
		busiest, sum = max(busiest, n), sum+n
	}
	if want := processes * callers * min(members, discovery.DefaultSubset); sum != want {
		t.Errorf("the callers use %d endpoints in all, want %d", sum, want)
	}
	average := float64(sum) / float64(members)
	slices.Sort(delays)
	t.Logf("a change is in a view after %v at p50 and %v at p99; it takes %v of CPU for each caller; "+
		"the busiest member has %d callers, %.1f on average",
		delays[len(delays)/2], delays[len(delays)*99/100], cpu/time.Duration(len(delays)), busiest, average)
	if long && float64(busiest) > 2.5*average { // lots: TestConnectionsAreSpread
		t.Errorf("the busiest member has %d callers, %.1f on average", busiest, average)
	}
}

// hashOf is of what a view has: tokens, addresses and data.
func hashOf(v *discovery.View) uint64 {
	h := fnv.New64a()
	for _, e := range v.All {
		fmt.Fprintln(h, e.Token, e.Addr, e.Zone, e.Meta["at"])
	}
	return h.Sum64()
}

type callersProcess struct{ out *bufio.Reader }

func startCallers(t *testing.T, addr string, callers int) *callersProcess {
	t.Helper()
	cmd := exec.Command(os.Args[0]) // see TestMain
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s %d", callersEnv, addr, callers))
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe() // its end ends the process
	must(t, err)
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	t.Cleanup(func() {
		_ = in.Close()
		if err := cmd.Wait(); err != nil {
			t.Errorf("a process of callers: %v", err)
		}
	})
	return &callersProcess{bufio.NewReader(out)}
}

func (p *callersProcess) line(t *testing.T) string {
	t.Helper()
	text, err := p.out.ReadString('\n')
	must(t, err)
	return text
}

func (p *callersProcess) expect(t *testing.T, want string) {
	t.Helper()
	if text := p.line(t); text != want+"\n" {
		t.Fatalf("a process of callers says %q, want %q", text, want)
	}
}

// runCallers has so many callers of the service until its input ends. It says "ready" when all have
// the list, "seen" when all have a change, and after the last one a callersReport.
func runCallers(text string) error {
	var addr string
	var callers int
	if _, err := fmt.Sscan(text, &addr, &callers); err != nil {
		return err
	}
	ctx := context.Background()
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	before, _ := usage()
	var copies []*discovery.Endpoints
	for range callers {
		c, err := client.Dial(ctx, addr)
		if err != nil {
			return err
		}
		e, err := discovery.Watch(c, "/default", "api")
		if err == nil {
			err = e.Wait(ctx)
		}
		if err != nil {
			return err
		}
		copies = append(copies, e)
	}
	r := callersReport{Used: map[string]int{}, Lists: make([]uint64, callers)}
	memory, began := usage()
	r.Memory = (memory - min(before, memory)) / uint64(callers)
	fmt.Println("ready")
	var mu sync.Mutex
	seen := map[int64]int{} // how many callers, by when the change was made
	var all sync.WaitGroup
	for i, e := range copies {
		all.Go(func() {
			v := follow(e, func(at int64) {
				delay := time.Duration(time.Now().UnixNano() - at)
				mu.Lock()
				defer mu.Unlock()
				r.Delays = append(r.Delays, delay)
				if seen[at]++; seen[at] == callers {
					fmt.Println("seen")
				}
			})
			mu.Lock()
			defer mu.Unlock()
			r.Lists[i] = hashOf(v)
			for _, e := range v.Used {
				r.Used[e.Addr]++
			}
		})
	}
	all.Wait()
	_, ended := usage()
	r.CPU = ended - began
	if err := json.NewEncoder(os.Stdout).Encode(r); err != nil {
		return err
	}
	select {}
}

// follow calls changed for each change, until the last one.
func follow(e *discovery.Endpoints, changed func(at int64)) *discovery.View {
	for newest := int64(0); ; <-e.Changed() {
		v, before := e.View(), newest
		for _, x := range v.All {
			at, err := strconv.ParseInt(x.Meta["at"], 10, 64)
			if err != nil || at <= before {
				continue
			}
			changed(at)
			if newest = max(newest, at); x.Meta["last"] != "" {
				return v
			}
		}
	}
}

// usage is the memory that is in use, and the CPU time so far.
func usage() (memory uint64, cpu time.Duration) {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	s := []metrics.Sample{{Name: "/cpu/classes/total:cpu-seconds"}, {Name: "/cpu/classes/idle:cpu-seconds"}}
	metrics.Read(s)
	return m.HeapAlloc, time.Duration((s[0].Value.Float64() - s[1].Value.Float64()) * float64(time.Second))
}
