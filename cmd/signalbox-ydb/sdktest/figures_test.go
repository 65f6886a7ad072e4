package sdktest

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/connectivity"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/server/servertest"
	"github.com/signalbox-dev/signalbox/server/servertest/binary"
	"github.com/signalbox-dev/signalbox/server/servertest/form"
)

// usage is the memory (bytes) and the processor time of a process.
func usage(t testing.TB, pid int) (memory uint64, cpu time.Duration) {
	t.Helper()
	stat := readFile(t, filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	fields := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
	for _, f := range fields[11:13] { // utime, stime: in hundredths of a second
		n, err := strconv.ParseUint(f, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		cpu += time.Duration(n) * 10 * time.Millisecond
	}
	pages, err := strconv.ParseUint(fields[21], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return pages * uint64(os.Getpagesize()), cpu
}

// measuredGateway is the binary, which serves an instance of its own.
func measuredGateway(t *testing.T) (address string, pid int) {
	t.Helper()
	srv := servertest.Start(t, servertest.RealTime())
	return startBinary(t, binary.Program(t, "cmd/signalbox-ydb"), srv.Addr())
}

// TestIdleConnections measures what 2,000 connections without a stream cost a gateway.
func TestIdleConnections(t *testing.T) {
	form.SkipUntil(t, form.Long, "it measures figures")
	const connections = 2000
	address, pid := measuredGateway(t)
	node(t, dialRaw(t, address))
	before, _ := usage(t, pid)
	for range connections {
		cc := dialRaw(t, address)
		cc.Connect()
		for state := cc.GetState(); state != connectivity.Ready; state = cc.GetState() {
			if !cc.WaitForStateChange(testContext(t), state) {
				t.Fatal(state)
			}
		}
	}
	memory, _ := usage(t, pid)
	t.Logf("%d connections: %.1f KiB each", connections, float64(memory-before)/connections/1024)
}

// TestIdleSessions measures what 5,000 idle sessions cost a gateway: one connection for 50 of them.
func TestIdleSessions(t *testing.T) {
	form.SkipUntil(t, form.Long, "it measures figures")
	const sessions, perConnection, idle = 5000, 50, 30 * time.Second
	address, pid := measuredGateway(t)
	path := node(t, dialRaw(t, address))
	before, _ := usage(t, pid)
	from := time.Now()
	for range sessions / perConnection {
		cc := dialRaw(t, address)
		for range perConnection {
			newSession(t, cc, path, withTimeout(10_000))
		}
	}
	started := time.Since(from)
	_, cpuFrom := usage(t, pid)
	time.Sleep(idle) // the measurement itself
	memory, cpuTo := usage(t, pid)
	more := float64(memory - before)
	started = started.Round(time.Millisecond)
	t.Logf("%d sessions over %d connections, started in %v", sessions, sessions/perConnection, started)
	t.Logf("%.0f MiB more, %.1f KiB each; %.1f %% of a core while idle", more/(1<<20), more/sessions/1024,
		100*(cpuTo-cpuFrom).Seconds()/idle.Seconds())
}

// TestAddedLatency compares an acquire and release through the gateway with the same by the SDK.
func TestAddedLatency(t *testing.T) {
	form.SkipUntil(t, form.Long, "it measures figures")
	const pairs = 3000
	srv := servertest.Start(t, servertest.RealTime(), servertest.Folder(t.TempDir()))
	address, _ := startGateway(t, []string{srv.Addr()})
	cc := dialRaw(t, address)
	path := node(t, cc)
	c, err := client.Dial(testContext(t), srv.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	native, err := c.Session(testContext(t), strings.TrimPrefix(path, "/local"))
	if err != nil {
		t.Fatal(err)
	}
	s := newSession(t, cc, path)
	var direct, through []time.Duration
	ctx := testContext(t)
	for i := range uint64(pairs) {
		from := time.Now()
		lease, err := native.Acquire(ctx, "direct", client.Exclusive())
		if err != nil {
			t.Fatal(err)
		}
		direct = append(direct, time.Since(from))
		if err := lease.Release(ctx); err != nil {
			t.Fatal(err)
		}
		from = time.Now()
		s.acquire(2*i, "through", forever, forever, "", true)
		s.expect(fmt.Sprintf("%d acquired=true", 2*i))
		through = append(through, time.Since(from))
		s.release(2*i+1, "through")
		s.expect(fmt.Sprintf("%d released=true", 2*i+1))
	}
	slices.Sort(direct)
	slices.Sort(through)
	at := func(d []time.Duration, p int) time.Duration {
		return d[len(d)*p/100].Round(time.Microsecond)
	}
	t.Logf("an acquire: p50 %v by the SDK, %v through the gateway; p99 %v and %v",
		at(direct, 50), at(through, 50), at(direct, 99), at(through, 99))
}
