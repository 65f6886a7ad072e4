package gateway

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/ydb-platform/ydb-go-genproto/protos/Ydb_Coordination"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/sessionstate"
	"github.com/signalbox-dev/signalbox/protocol"
)

// TestNextEpoch: a later attach has a higher epoch and higher request numbers, by any order
// of seq_nos that do not fall, with attaches of the holders' own in between.
func TestNextEpoch(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 1000 {
		epoch, number, seq := uint64(1), uint64(1), uint64(0)
		for range 200 {
			used := epoch + random.Uint64N(1<<holderShift) // the holder's own attaches
			if random.IntN(3) == 0 {
				seq = min(seq+random.Uint64N(1000), maxSeqNo)
			}
			if last := used >> seqNoShift; seq < last {
				seq = last
			}
			next, first, ok := nextEpoch(used, seq)
			if !ok || next <= used || next>>seqNoShift != seq || first <= number {
				t.Fatalf("after epoch %#x and number %d comes %#x with %d for seq_no %d, %t", used, number, next, first, seq, ok)
			}
			epoch, number = next, first+random.Uint64N(1<<30)
			if _, _, ok := nextEpoch(epoch, seq-1); seq > 0 && ok {
				t.Fatalf("seq_no %d attaches after %d", seq-1, seq)
			}
		}
	}
	// The last holder's number runs into seq_no.
	last := uint64(7)<<seqNoShift | (1<<seqNoShift - 1)
	if next, first, ok := nextEpoch(last, 7); !ok || next <= last || next>>seqNoShift != 8 || first != 1<<numberShift+1 {
		t.Fatal(next, first, ok)
	}
	if next, _, ok := nextEpoch(maxSeqNo<<seqNoShift, maxSeqNo); !ok || next <= maxSeqNo<<seqNoShift {
		t.Fatal(next, ok)
	}
}

// TestNativeTimeout: the native session may be relied on for the client's timeout and the slack,
// with any grace period, and the cluster takes its timeout.
func TestNativeTimeout(t *testing.T) {
	for _, timeout := range []time.Duration{0, time.Millisecond, 100 * time.Millisecond, time.Second, 5 * time.Second, 10 * time.Second, time.Minute, maxTimeout} {
		native := nativeTimeout(timeout)
		if native < sessionstate.MinTimeout || native > sessionstate.MaxTimeout {
			t.Errorf("%v becomes %v, which the cluster refuses", timeout, native)
		}
		for _, grace := range []time.Duration{1500 * time.Millisecond, 10 * time.Second, maxGrace} {
			window := sessionstate.Window(sessionstate.Enlarge(native, grace), grace)
			if window < timeout+slackOf(timeout) {
				t.Errorf("%v becomes %v, relied on for %v only with a grace period of %v", timeout, native, window, grace)
			}
		}
	}
}

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

func TestSessionKey(t *testing.T) {
	seen := make(map[string]bool)
	for _, k := range [][]byte{nil, {0}, {0, 0}, []byte("a"), make([]byte, 16)} {
		key, err := sessionKey(k)
		if err != nil || seen[string(key[:])] {
			t.Errorf("key %x: %v", k, err)
		}
		seen[string(key[:])] = true
	}
	if _, err := sessionKey(make([]byte, 17)); protocol.StatusOf(err) != protocol.StatusBadRequest {
		t.Error(err)
	}
}

// sink is a stream that a test reads.
type sink struct {
	mu   sync.Mutex
	sent []*response
	gate chan struct{} // if not nil, each message waits for one
}

func (s *sink) Send(m *response) error {
	if s.gate != nil {
		<-s.gate
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sent = append(s.sent, m)
	return nil
}

func (s *sink) numbers() (list []uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range s.sent {
		list = append(list, m.GetPong().GetOpaque())
	}
	return list
}

func pong(n uint64) *response {
	return &response{Response: &Ydb_Coordination.SessionResponse_Pong{Pong: &Ydb_Coordination.SessionResponse_PingPong{Opaque: n}}}
}

// TestOutbox: messages keep their order; guarded ones wait for the session, and are dropped when
// the stream ends first; a reader that is too slow ends it.
func TestOutbox(t *testing.T) {
	to := new(sink)
	var mu sync.Mutex
	healthy := true
	set := func(on bool) {
		mu.Lock()
		defer mu.Unlock()
		healthy = on
	}
	failed := make(chan error, 1)
	o := newOutbox(t.Context(), to, func() bool { mu.Lock(); defer mu.Unlock(); return healthy }, func(err error) {
		select {
		case failed <- err:
		default:
		}
	})
	for i := range uint64(100) {
		o.put(pong(i), guarded)
	}
	o.flush(time.Minute)
	set(false)
	o.put(pong(100), guarded)
	o.flush(3 * healthCheck)
	if n := len(to.numbers()); n != 100 {
		t.Fatalf("%d messages were sent", n)
	}
	set(true)
	o.flush(time.Minute)
	set(false)
	o.put(pong(101), guarded) // is dropped
	o.put(pong(102), atOnce)
	o.flush(time.Minute)
	got := to.numbers()
	if len(got) != 102 || got[100] != 100 || got[101] != 102 {
		t.Fatal(got)
	}

	slow := &sink{gate: make(chan struct{})}
	ctx, cancel := context.WithCancel(t.Context())
	o = newOutbox(ctx, slow, func() bool { return true }, func(err error) {
		select {
		case failed <- err:
		default:
		}
	})
	long := failure(0, errors.New(string(make([]byte, maxQueued/2))))
	for range 3 {
		o.put(long, guarded)
	}
	if err := <-failed; protocol.StatusOf(err) != protocol.StatusOverloaded {
		t.Fatal(err)
	}
	cancel()
	close(slow.gate)
}

// TestOutboxOfSmallMessages: messages of a few bytes count with what they take in memory.
func TestOutboxOfSmallMessages(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	slow := &sink{gate: make(chan struct{})}
	failed := false
	o := newOutbox(ctx, slow, func() bool { return true }, func(err error) { failed = protocol.StatusOf(err) == protocol.StatusOverloaded })
	m := pong(0)
	for range maxQueued/queuedCost + 1 {
		o.put(m, guarded)
	}
	if !failed {
		t.Errorf("%d messages wait for a client that does not read", len(o.queue))
	}
	cancel()
	close(slow.gate)
}

// TestInFlightBytes: the requests in flight are bounded in bytes too, and give back what they took.
func TestInFlightBytes(t *testing.T) {
	o := newOperations(&stream{g: &Gateway{}})
	var refused error
	refuse := func(err error) { refused = err }
	for range maxInFlightBytes / maxReceive {
		if !o.admit(maxReceive, refuse) {
			t.Fatal(refused)
		}
	}
	if o.admit(1, refuse) || protocol.StatusOf(refused) != protocol.StatusOverloaded {
		t.Fatal(refused)
	}
	o.leaver(maxReceive)()
	if !o.admit(maxReceive, refuse) {
		t.Fatal(refused)
	}
}

// TestTokensOfConnectionsInTheMaking: clients that give up while their connections are being made
// leave the table full, and the next token is refused until a try is over.
func TestTokensOfConnectionsInTheMaking(t *testing.T) {
	table := newClusterTable(&Gateway{})
	for i := range maxClusters {
		token := fmt.Sprint(i)
		table.byToken[token] = &cluster{token: token, ready: make(chan struct{})}
	}
	if c, err := table.take("one more"); protocol.StatusOf(err) != protocol.StatusOverloaded || len(table.byToken) != maxClusters {
		t.Fatal(c, err, len(table.byToken))
	}
}

// TestLongResult: a result that gRPC would refuse to send is refused in its envelope.
func TestLongResult(t *testing.T) {
	op, err := operation(&Ydb_Coordination.Config{Path: string(make([]byte, maxDescription))}, nil)
	if err != nil || op.GetStatus().String() != "PRECONDITION_FAILED" || op.GetResult() != nil {
		t.Fatal(op.GetStatus(), err)
	}
}

func TestStatuses(t *testing.T) {
	for st := protocol.StatusOK; st <= protocol.StatusInternal; st++ {
		if int(st) >= len(statuses) || statuses[st] == 0 {
			t.Errorf("%v has no status of YDB's", st)
		}
	}
	for err, want := range map[error]string{
		fmt.Errorf("x: %w", client.ErrTakenOver):             "BAD_SESSION",
		client.ErrNotRenewed:                                 "UNAVAILABLE",
		client.ErrSessionExpired:                             "SESSION_EXPIRED",
		protocol.Errorf(protocol.StatusForbidden, "no"):      "UNAUTHORIZED",
		protocol.Errorf(protocol.StatusSessionExpired, "no"): "SESSION_EXPIRED",
		errors.New("what"):                                   "INTERNAL_ERROR",
	} {
		if got := statusOf(err).String(); got != want {
			t.Errorf("%v is %s, want %s", err, got, want)
		}
	}
}
