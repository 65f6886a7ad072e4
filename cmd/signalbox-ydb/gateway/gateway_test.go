package gateway

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/ydb-platform/ydb-go-genproto/protos/Ydb_Coordination"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/protocol"
)

func TestPaths(t *testing.T) {
	for _, c := range []struct{ database, path, want string }{
		{"/local", "/local/a/b", "/a/b"},
		{"local/", "/local/a/", "/a"},
		{"/local", "/local", ""},
		{"/ru/prod", "/ru/prod/x", "/x"},
		{"/", "/a", "/a"},
		{"/local", "/localhost/a", "!"},
		{"/local", "local/a", "!"},
		{"/local", "/a", "!"},
		{"/local", "", "!"},
	} {
		prefix, err := databasePrefix(c.database)
		if err != nil {
			t.Fatal(err)
		}
		g := &Gateway{prefix: prefix}
		got, err := g.nodePath(c.path)
		if protocol.StatusOf(err) == protocol.StatusBadRequest && err != nil {
			got = "!"
		}
		if got != c.want {
			t.Errorf("%s in %s is %q, want %q", c.path, c.database, got, c.want)
		}
		if got != "!" && c.want != "" && g.clientPath(got) != "/"+string(bytes.Trim([]byte(c.path), "/")) {
			t.Errorf("%s comes back as %s", c.path, g.clientPath(got))
		}
	}
	for _, bad := range []string{"", "here", ":1", "here:0", "here:x", "here:70000"} {
		if _, err := endpointOf(bad); err == nil {
			t.Errorf("%q is taken for an address", bad)
		}
	}
}

func TestDelays(t *testing.T) {
	d, now := newDelayTable(), time.Now()
	for _, want := range []time.Duration{100, 200, 400, 800, 1600, 2000, 2000} {
		if got := d.failed("a", now); got != want*time.Millisecond {
			t.Errorf("delayed for %v, want %d ms", got, want)
		}
	}
	if got := d.failed("b", now); got != firstDelay {
		t.Errorf("another host is delayed for %v", got)
	}
	if got := d.failed("a", now.Add(delayMemory+1)); got != firstDelay {
		t.Errorf("after a while a host is delayed for %v", got)
	}
	for i := range 3 * maxDelayHosts {
		d.failed(fmt.Sprint(i), now.Add(time.Duration(i)*time.Millisecond))
	}
	if len(d.hosts) > maxDelayHosts {
		t.Errorf("%d hosts are remembered", len(d.hosts))
	}
}

// TestPingPeriod: a third of the timeout within bounds; no timeout is kept alive by more.
func TestPingPeriod(t *testing.T) {
	for timeout, want := range map[time.Duration]time.Duration{
		0: maxPing, time.Millisecond: minPing, 600 * time.Millisecond: 200 * time.Millisecond,
		3 * time.Second: time.Second, time.Minute: maxPing,
	} {
		if l := newLiveness(timeout); l.period != want || l.limit < silence || l.limit < 2*l.period {
			t.Errorf("a timeout of %v is pinged each %v, and silent after %v", timeout, l.period, l.limit)
		}
	}
}

// TestSilence: a client is silent if it owes the answer to a ping that was delivered. One that
// still receives what comes before the ping is not, for minutes.
func TestSilence(t *testing.T) {
	l, now := newLiveness(time.Minute), time.Now()
	after := func(d time.Duration, want bool) {
		t.Helper()
		if now = now.Add(d); l.isSilent(now) != want {
			t.Errorf("silent: %t", !want)
		}
	}
	first, due := l.nextPing()
	if !due {
		t.Fatal("no ping is due")
	}
	after(4*silence, false)
	if _, due := l.nextPing(); due {
		t.Error("a ping is due while another one waits to be sent")
	}
	l.delivered(now)
	after(silence, false)
	if second, due := l.nextPing(); !due || second != first+1 {
		t.Error(second, due)
	}
	l.delivered(now)
	after(1, true) // the first one counts
	l.received(now)
	after(2*silence, false)
	after(undeliveredSilence-2*silence, false)
	after(1, true)
}

// TestLongUpload: a client is not silent while a message of it is on its way, for minutes. A few
// bytes are no sign of that, and neither is what came before the client owed an answer.
func TestLongUpload(t *testing.T) {
	l, now, bytes := newLiveness(time.Minute), time.Now(), int64(0)
	tick := func(more int64) (silent bool) {
		now, bytes = now.Add(l.period), bytes+more
		l.transferred(now, bytes)
		return l.isSilent(now)
	}
	ticks := int(l.limit/l.period) + 1
	silentAfter := func(more int64, want int) {
		t.Helper()
		for i := 1; i <= want; i++ {
			if silent := tick(more); silent != (i == want) {
				t.Fatalf("after %d pings of %d, silent: %t", i, want, silent)
			}
		}
	}
	if tick(1 << 20) {
		t.Fatal("a client is silent that owes nothing")
	}
	l.delivered(now)
	silentAfter(leastUpload/int64(ticks)-1, ticks)
	l.received(now)
	first := now
	tick(0)
	l.delivered(now)
	for now.Sub(first) <= undeliveredSilence-l.period {
		if tick(leastUpload) {
			t.Fatalf("silent during an upload, after %v", now.Sub(first))
		}
	}
	silentAfter(leastUpload, ticks)
}

// TestInFlightBytes: the requests in flight are bounded in bytes too, and give back what they took.
func TestInFlightBytes(t *testing.T) {
	o := newOperations(&stream{g: &Gateway{}, kept: unbounded()})
	var refused error
	refuse := func(err error) { refused = err }
	for range maxInFlightBytes / maxRequest {
		if !o.admit(maxRequest, refuse) {
			t.Fatal(refused)
		}
	}
	if o.admit(maxRequest+1, refuse) || protocol.StatusOf(refused) != protocol.StatusBadRequest {
		t.Fatal(refused)
	}
	if o.admit(1, refuse) || protocol.StatusOf(refused) != protocol.StatusOverloaded {
		t.Fatal(refused)
	}
	o.leaver(maxRequest)()
	if !o.admit(maxRequest, refuse) {
		t.Fatal(refused)
	}
}

// TestLongResult: a result that gRPC would refuse to send is refused in its envelope.
func TestLongResult(t *testing.T) {
	op, err := operation(&Ydb_Coordination.Config{Path: string(make([]byte, maxDescription))}, nil)
	if err != nil || op.GetStatus().String() != "PRECONDITION_FAILED" || op.GetResult() != nil {
		t.Fatal(op.GetStatus(), err)
	}
}

// TestTornDescription: a description whose parts are of different moments is refused, for YDB's
// has no way to say so.
func TestTornDescription(t *testing.T) {
	if err := checkDescription(&client.Semaphore{}, maxDescription); err != nil {
		t.Error(err)
	}
	if err := checkDescription(&client.Semaphore{}, maxDescription+1); protocol.StatusOf(err) != protocol.StatusPreconditionFailed {
		t.Error(err)
	}
	if err := checkDescription(&client.Semaphore{Torn: true}, 0); protocol.StatusOf(err) != protocol.StatusOverloaded {
		t.Error(err)
	}
}

// TestExpiryAtShutdown: a gateway that shuts down leaves a session that is being restored to the
// cluster.
func TestExpiryAtShutdown(t *testing.T) {
	g, _ := serve(t, Config{})
	g.stop()
	c := &cluster{g: g, restoring: map[uint64]*restoring{7: {done: make(chan struct{})}}}
	(&session{c: c, id: 7, native: new(client.Session)}).expire()
	if n := g.metrics.expired.Load(); n != 0 {
		t.Errorf("%d sessions have expired", n)
	}
}

func TestStatuses(t *testing.T) {
	for st := protocol.StatusOK; st <= protocol.StatusInternal; st++ {
		if int(st) >= len(statuses) || statuses[st] == 0 {
			t.Errorf("%v has no status of YDB's", st)
		}
	}
	for err, want := range map[error]string{
		fmt.Errorf("x: %w", client.ErrTakenOver):                        "BAD_SESSION",
		client.ErrNotRenewed:                                            "UNAVAILABLE",
		client.ErrSessionExpired:                                        "SESSION_EXPIRED",
		protocol.Errorf(protocol.StatusForbidden, "no"):                 "UNAUTHORIZED",
		protocol.Errorf(protocol.StatusSessionExpired, "no"):            "SESSION_EXPIRED",
		errors.New("what"):                                              "INTERNAL_ERROR",
		fmt.Errorf("x: %w", client.ErrOtherCluster):                     "UNAVAILABLE",
		errors.Join(client.ErrOutcomeUnknown, context.DeadlineExceeded): "UNDETERMINED",
		errors.Join(client.ErrOutcomeUnknown, protocol.Errorf(protocol.StatusUnavailable, "no")): "UNDETERMINED",
		errors.Join(client.ErrOutcomeUnknown, client.ErrSessionExpired):                          "SESSION_EXPIRED",
	} {
		if got := statusOf(err).String(); got != want {
			t.Errorf("%v is %s, want %s", err, got, want)
		}
	}
}
