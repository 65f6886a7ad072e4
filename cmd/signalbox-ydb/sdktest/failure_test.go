package sdktest

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/ydb-platform/ydb-go-genproto/protos/Ydb"

	"github.com/signalbox-dev/signalbox/server/servertest"
	"github.com/signalbox-dev/signalbox/server/servertest/await"
)

// gatewayProcess runs the test binary as a gateway, which kill ends without a word.
func gatewayProcess(t testing.TB, other string, endpoints []string) (address string, kill func()) {
	t.Helper()
	p := exec.Command(os.Args[0])
	p.Env = append(os.Environ(), gatewayVariable+"="+other+" "+strings.Join(endpoints, " "))
	p.Stderr = os.Stderr
	alive, err := p.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := p.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	kill = func() {
		_ = p.Process.Kill()
		_ = alive.Close()
		_, _ = io.Copy(io.Discard, out)
		_ = p.Wait()
	}
	t.Cleanup(kill)
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(line), kill
}

// TestKilledGateway: a gateway is killed while its clients hold locks and wait. The session that is
// restored at another gateway keeps its lock and its place; the one that does not return loses its
// lock after its timeout.
func TestKilledGateway(t *testing.T) {
	t.Parallel()
	endpoints := sharedCluster(t).Addrs()
	first, kill := gatewayProcess(t, "-", endpoints)
	second, _ := startGateway(t, endpoints)
	one, two := dialRaw(t, first), dialRaw(t, second)
	path := node(t, two)
	returns := newSession(t, one, path, withTimeout(patienceMillis))
	gone := newSession(t, one, path, withTimeout(5000))
	waits := newSession(t, one, path, withTimeout(patienceMillis))
	returns.acquire(1, "kept", forever, 0, "", true)
	returns.expect("1 acquired=true")
	gone.acquire(1, "lost", forever, 0, "", true)
	gone.expect("1 acquired=true")
	waits.acquire(1, "kept", forever, forever, "", true)
	waits.expect("1 pending")
	behind := newSession(t, two, path, withTimeout(patienceMillis))
	behind.acquire(1, "kept", forever, forever, "", true)
	behind.expect("1 pending")
	behind.acquire(2, "lost", forever, forever, "", true)
	behind.expect("2 pending")
	kill()

	behind.expect("2 acquired=true") // its holder did not return
	restore(t, two, path, gone.id, 1, "key").failed(Ydb.StatusIds_SESSION_EXPIRED)
	again := restore(t, two, path, returns.id, 1, "key").started()
	again.acquire(1, "kept", forever, 0, "", true)
	again.expect("1 acquired=true")
	waiter := restore(t, two, path, waits.id, 1, "key").started()
	waiter.acquire(1, "kept", forever, forever, "", true)
	waiter.expect("1 pending")
	again.release(2, "kept")
	again.expect("2 released=true")
	waiter.expect("1 acquired=true") // before the one behind
	waiter.stop()
	waiter.expect("stopped")
	behind.expect("1 acquired=true")
}

// TestClosedGateway: a gateway that shuts down says so, and sessions go on at another one.
func TestClosedGateway(t *testing.T) {
	t.Parallel()
	endpoints := sharedCluster(t).Addrs()
	first, g := startGateway(t, endpoints)
	second, _ := startGateway(t, endpoints)
	one, two := dialRaw(t, first), dialRaw(t, second)
	path := node(t, two)
	s := newSession(t, one, path)
	s.acquire(1, "lock", forever, 0, "", true)
	s.expect("1 acquired=true")
	g.Close()
	s.failed(Ydb.StatusIds_UNAVAILABLE)
	again := restore(t, two, path, s.id, 1, "key").started()
	again.release(1, "lock")
	again.expect("1 released=true")
}

// TestSilentCluster: when the cluster answers nothing for longer than a session's timeout, its
// stream fails with UNAVAILABLE. The streams of longer ones go on as if nothing had been.
func TestSilentCluster(t *testing.T) {
	t.Parallel()
	srv := servertest.Start(t, servertest.RealTime())
	address, _ := startGateway(t, []string{srv.Addr()})
	cc := dialRaw(t, address)
	path := node(t, cc)
	brief := newSession(t, cc, path, withTimeout(500))
	long := newSession(t, cc, path, withTimeout(patienceMillis))
	long.acquire(1, "lock", forever, 0, "", true)
	long.expect("1 acquired=true")
	srv.Pause()
	long.create(2, "sem", 1, "")
	brief.failed(Ydb.StatusIds_UNAVAILABLE)
	srv.Resume()
	long.expect("2 created")
	long.release(3, "lock")
	long.expect("3 released=true")
}

// TestNotRenewed: while the cluster does not renew a session, nothing is sent that lets its client believe
// in it for the whole timeout again. Afterwards all of it comes, in order.
func TestNotRenewed(t *testing.T) {
	t.Parallel()
	srv := servertest.Start(t, servertest.RealTime())
	address, g := startGateway(t, []string{srv.Addr()})
	cc := dialRaw(t, address)
	s := newSession(t, cc, node(t, cc), withTimeout(10_000))
	srv.Pause()
	const many = 20 // a writer that is only late has fewer to send
	pings := uint64(0)
	await.True(t, "pongs that are held back", func() bool {
		if len(s.ended) > 0 {
			t.Fatalf("the session is over, and until then its client had all %d pongs", pings)
		}
		pings++
		s.ping(pings)
		return metric(t, g, "outbox_bytes") > many*queuedCost
	})
	srv.Resume()
	for n := range pings {
		s.expect(fmt.Sprint("pong ", n+1))
	}
}

// queuedCost is the least that a message counts for while it waits to be sent, in bytes.
const queuedCost = 256

// TestKilledLeaders: changes of leaders show nothing on a stream but a watch that may have missed
// one. What is held stays held, requests are answered once, and waits go on.
func TestKilledLeaders(t *testing.T) {
	t.Parallel()
	cluster, address := ownCluster(t)
	cc := dialRaw(t, address)
	path := node(t, cc)
	long := withTimeout(patienceMillis)
	holder, waiter := newSession(t, cc, path, long), newSession(t, cc, path, long)
	// answer is the next message but the end of a watch, which any change of leaders may cause.
	answer := func(s *rawStream) string {
		for {
			if line := text(s.next()); !strings.HasSuffix(line, " changed data=true owners=true") {
				return line
			}
		}
	}
	const names = 16 // in several shards
	name := func(i uint64) string { return fmt.Sprint("n", i) }
	for i := range uint64(names) {
		holder.acquire(i, name(i), forever, 0, "", true)
		holder.expect(fmt.Sprintf("%d acquired=true", i))
		waiter.acquire(i, name(i), forever, forever, "", true)
		waiter.expect(fmt.Sprintf("%d pending", i))
	}
	// Watches of all, which end as changed whether or not there was one.
	for i := range uint64(names) {
		holder.describe(&describeSemaphore{ReqId: 100 + i, Name: name(i), WatchData: true})
		want := fmt.Sprintf(`%d described "" %d/%[2]d ephemeral=true watch=true`, 100+i, uint64(forever))
		if got := answer(holder); got != want {
			t.Fatalf("got %q, want %q", got, want)
		}
	}
	for round := range uint64(2) {
		restart := killALeader(t, cluster)
		for i := range uint64(names) {
			id := 1000*(round+1) + i
			holder.create(id, fmt.Sprintf("r%d-%d", round, i), 1, "")
		}
		created := make(map[string]bool)
		for len(created) < names {
			line := answer(holder)
			if !strings.HasSuffix(line, " created") || created[line] {
				t.Fatalf("%s", line)
			}
			created[line] = true
		}
		restart()
		cluster.WaitReady()
	}
	// Nobody was granted anything meanwhile.
	select {
	case m := <-waiter.got:
		t.Fatalf("%s", text(m))
	default:
	}
	for i := range uint64(names) {
		holder.release(9000+i, name(i))
		if got, want := answer(holder), fmt.Sprintf("%d released=true", 9000+i); got != want {
			t.Fatalf("got %q, want %q", got, want)
		}
		waiter.expect(fmt.Sprintf("%d acquired=true", i))
	}
}
