package gateway_test

import (
	"bufio"
	"context"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/admin"
	"github.com/signalbox-dev/signalbox/client/gateway"
	"github.com/signalbox-dev/signalbox/server/servertest"
	"github.com/signalbox-dev/signalbox/server/servertest/await"
	"github.com/signalbox-dev/signalbox/server/servertest/pagesize"
)

func TestMain(m *testing.M) {
	pagesize.Two()
	goleak.VerifyTestMain(m, goleak.IgnoreCurrent())
}

func testContext(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), await.Limit)
	t.Cleanup(cancel)
	return ctx
}

func openNode(t *testing.T, srv *servertest.Server) *client.Node {
	t.Helper()
	c, err := client.Dial(testContext(t), srv.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.CloseWithoutRelease)
	n, err := c.Node(testContext(t), "/default")
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func nobody() { panic("a request that is decided at once is reported as queued") }

// TestAttach: a session passes from holder to holder, by epochs, within one client and between two,
// with what it holds; the holder before is told, and the key and the epoch are checked.
func TestAttach(t *testing.T) {
	t.Parallel()
	srv := servertest.Start(t)
	one, two := openNode(t, srv), openNode(t, srv)
	ctx := testContext(t)
	key := gateway.Key{1, 2, 3}
	s, err := gateway.Start(ctx, one, key)
	if err != nil {
		t.Fatal(err)
	}
	if ok, err := gateway.Acquire(ctx, s, gateway.AcquireRequest{Name: "lock", Count: 1, Ephemeral: true}, nobody); !ok || err != nil {
		t.Fatal(ok, err)
	}
	info, err := admin.OfNode(one).DescribeSession(ctx, s.ID())
	if err != nil || info.Epoch != 1 {
		t.Fatal(info, err)
	}
	for i, n := range []*client.Node{one, two, two, one} {
		epoch := uint64(i+1) * 100
		for what, take := range map[string]gateway.Takeover{
			"wrong key": {Session: s.ID(), Key: gateway.Key{9}, Epoch: epoch, FirstNumber: 1 << 50},
			"low epoch": {Session: s.ID(), Key: key, Epoch: epoch - 100, FirstNumber: 1 << 50},
		} {
			if _, err := gateway.Attach(ctx, n, take); !errors.Is(err, client.ErrBadSession) {
				t.Fatalf("%s: %v", what, err)
			}
		}
		next, err := gateway.Attach(ctx, n, gateway.Takeover{Session: s.ID(), Key: key, Epoch: epoch, FirstNumber: uint64(i+1) << 40})
		if err != nil {
			t.Fatal(err)
		}
		<-s.Context().Done()
		if err := s.Err(); !errors.Is(err, client.ErrTakenOver) {
			t.Fatal(err)
		}
		_ = s.Close(ctx) // of the former holder, late: it ends nothing
		s = next
		// What it held is there, and requests are new ones.
		if released, err := s.Release(ctx, "lock"); !released || err != nil {
			t.Fatal(released, err)
		}
		if ok, err := gateway.Acquire(ctx, s, gateway.AcquireRequest{Name: "lock", Count: 1, Ephemeral: true}, nobody); !ok || err != nil {
			t.Fatal(ok, err)
		}
	}
	if err := s.Close(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := gateway.Attach(ctx, one, gateway.Takeover{Session: s.ID(), Key: key, Epoch: 1000,
		FirstNumber: 1 << 50}); !errors.Is(err, client.ErrSessionExpired) {
		t.Fatal(err)
	}
}

// TestAcquire: an acquire says that it waits and then how it ends; a newer one ends it, and so does
// a release.
func TestAcquire(t *testing.T) {
	t.Parallel()
	srv := servertest.Start(t)
	n := openNode(t, srv)
	ctx := testContext(t)
	var sessions []*client.Session
	for range 2 {
		s, err := gateway.Start(ctx, n, gateway.Key{})
		if err != nil {
			t.Fatal(err)
		}
		sessions = append(sessions, s)
	}
	all := gateway.AcquireRequest{Name: "lock", Count: client.Max, Ephemeral: true}
	if ok, err := gateway.Acquire(ctx, sessions[0], all, nobody); !ok || err != nil {
		t.Fatal(ok, err)
	}
	if ok, err := gateway.Acquire(ctx, sessions[1], all, nobody); ok || err != nil {
		t.Fatal(ok, err)
	}
	all.Timeout = gateway.Forever
	type outcome struct {
		acquired bool
		err      error
	}
	begin := func() (ended chan outcome) {
		queued := make(chan struct{})
		ended = make(chan outcome, 1)
		go func() {
			ok, err := gateway.Acquire(ctx, sessions[1], all, func() { close(queued) })
			ended <- outcome{ok, err}
		}()
		<-queued
		return ended
	}
	first := begin()
	second := begin()
	if got := <-first; !errors.Is(got.err, client.ErrAborted) {
		t.Fatal(got)
	}
	if released, err := sessions[1].Release(ctx, "lock"); !released || err != nil {
		t.Fatal(released, err)
	}
	if got := <-second; !errors.Is(got.err, client.ErrAborted) {
		t.Fatal(got)
	}
	third := begin()
	srv.DropConnections() // it is sent again, and is answered as before
	if released, err := sessions[0].Release(ctx, "lock"); !released || err != nil {
		t.Fatal(released, err)
	}
	if got := <-third; !got.acquired || got.err != nil {
		t.Fatal(got)
	}
	if _, err := gateway.Acquire(ctx, sessions[0], gateway.AcquireRequest{Count: 1},
		nobody); !errors.Is(err, client.ErrBadRequest) {
		t.Fatal(err)
	}
}

// TestAcquireWithoutAccepted: a caller that need not know when its request waits has no function.
func TestAcquireWithoutAccepted(t *testing.T) {
	t.Parallel()
	srv := servertest.Start(t, servertest.RealTime())
	n := openNode(t, srv)
	ctx := testContext(t)
	request := gateway.AcquireRequest{Name: "lock", Count: client.Max, Ephemeral: true, Timeout: 1}
	for _, want := range []bool{true, false} { // the second one waits
		s, err := gateway.Start(ctx, n, gateway.Key{})
		if err != nil {
			t.Fatal(err)
		}
		if ok, err := gateway.Acquire(ctx, s, request, nil); ok != want || err != nil {
			t.Fatal(ok, err)
		}
	}
}

// TestDescribe: with a watch and without, and never more than is asked for.
func TestDescribe(t *testing.T) {
	t.Parallel()
	srv := servertest.Start(t)
	n := openNode(t, srv)
	ctx := testContext(t)
	s, err := gateway.Start(ctx, n, gateway.Key{})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Create(ctx, "sem", 3, make([]byte, 1000)); err != nil {
		t.Fatal(err)
	}
	length := 0
	progress := func(bytes int) { length = bytes }
	sem, fired, err := gateway.Describe(ctx, s, gateway.DescribeRequest{Name: "sem", Owners: true, MaxBytes: 2000, Progress: progress})
	if err != nil || fired != nil || sem.Limit != 3 || length < 1000 || length > 2000 {
		t.Fatal(sem, fired, length, err)
	}
	if _, _, err := gateway.Describe(ctx, s,
		gateway.DescribeRequest{Name: "sem", MaxBytes: 999}); !errors.Is(err, client.ErrPreconditionFailed) {
		t.Fatal(err)
	}
	if _, fired, err = gateway.Describe(ctx, s, gateway.DescribeRequest{Name: "sem", Watch: gateway.OnData}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Update(ctx, "sem", []byte("new")); err != nil {
		t.Fatal(err)
	}
	if got := <-fired; got != (gateway.WatchResult{DataChanged: true}) {
		t.Fatal(got)
	}
	if _, _, err := gateway.Describe(ctx, s,
		gateway.DescribeRequest{Name: "none", Watch: gateway.OnData}); !errors.Is(err, client.ErrNotFound) {
		t.Fatal(err)
	}
}

// TestOneShotWatch: what it reports, and each end that it has without a change.
func TestOneShotWatch(t *testing.T) {
	t.Parallel()
	srv := servertest.Start(t)
	ctx := testContext(t)
	s, err := gateway.Start(ctx, openNode(t, srv), gateway.Key{})
	must(t, err)
	must(t, s.Create(ctx, "once", 2, []byte("a")))
	watch := func(name string, what gateway.WatchMask) (*client.Semaphore, <-chan gateway.WatchResult, error) {
		return gateway.Describe(ctx, s, gateway.DescribeRequest{Name: name, Watch: what, Strict: true})
	}
	_, _, err = watch("missing", gateway.OnData)
	if !errors.Is(err, client.ErrNotFound) {
		t.Fatal(err)
	}
	sem, fired, err := watch("once", gateway.OnData)
	must(t, err)
	if string(sem.Data) != "a" || sem.Version != 1 {
		t.Fatalf("%+v", sem)
	}
	l, err := s.Acquire(ctx, "once")
	must(t, err)
	_, err = s.Update(ctx, "once", []byte("b"))
	must(t, err)
	if f := <-fired; f != (gateway.WatchResult{DataChanged: true}) {
		t.Fatalf("%+v", f)
	}
	_, older, err := watch("once", gateway.OnOwners)
	must(t, err)
	_, fired, err = watch("once", gateway.OnOwners|gateway.OnData)
	must(t, err)
	if f := <-older; f != (gateway.WatchResult{}) {
		t.Fatalf("replaced: %+v", f)
	}
	must(t, l.Release(ctx))
	if f := <-fired; f != (gateway.WatchResult{OwnersChanged: true}) {
		t.Fatalf("%+v", f)
	}
	_, fired, err = watch("once", gateway.OnOwners)
	must(t, err)
	srv.DropConnections()
	if f := <-fired; f != (gateway.WatchResult{}) {
		t.Fatalf("lost link: %+v", f)
	}
	_, fired, err = watch("once", gateway.OnOwners)
	must(t, err)
	must(t, s.Close(ctx))
	if f := <-fired; f != (gateway.WatchResult{}) {
		t.Fatalf("closed session: %+v", f)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestFailedDescribeWatchesNothing: a description that fails behind its first page leaves no watch
// behind. The end of one, by a lost connection, would have the next RELAXED read be STRICT, because a
// change may have been missed.
func TestFailedDescribeWatchesNothing(t *testing.T) {
	t.Parallel()
	srv := servertest.Start(t)
	ctx := testContext(t)
	n := openNode(t, srv)
	states := make(chan client.State, 10)
	s, err := gateway.Start(ctx, n, gateway.Key{}, client.OnState(func(s client.State) { states <- s }))
	must(t, err)
	other, err := gateway.Start(ctx, openNode(t, srv), gateway.Key{})
	must(t, err)
	must(t, other.Create(ctx, "sem", 3, make([]byte, 1000)))
	request := gateway.DescribeRequest{Name: "sem", Watch: gateway.OnData, MaxBytes: 999}
	if _, _, err := gateway.Describe(ctx, s, request); !errors.Is(err, client.ErrPreconditionFailed) {
		t.Fatal(err)
	}
	srv.DropConnections()
	for over := time.After(await.Limit); ; {
		select {
		case state := <-states:
			if state != client.Attached {
				continue
			}
		case <-over:
			t.Fatal("the session is not attached again")
		}
		break
	}
	before := barriers(t, srv)
	_, err = n.Describe(ctx, "sem", client.ReadConsistency(client.Relaxed))
	must(t, err)
	if more := barriers(t, srv) - before; more > 0 {
		t.Errorf("the read needed %d barriers", more)
	}
}

// barriers is how many read barriers the server has passed.
func barriers(t *testing.T, srv *servertest.Server) (n int) {
	t.Helper()
	reply, err := http.Get("http://" + srv.AdminAddr() + "/metrics")
	must(t, err)
	defer reply.Body.Close()
	for lines := bufio.NewScanner(reply.Body); lines.Scan(); {
		if name, value, _ := strings.Cut(lines.Text(), " "); strings.HasPrefix(name, "signalbox_shard_barriers_total") {
			more, err := strconv.Atoi(value)
			must(t, err)
			n += more
		}
	}
	return n
}
