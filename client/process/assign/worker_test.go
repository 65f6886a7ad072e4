package assign

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/process"
	"github.com/signalbox-dev/signalbox/server/servertest"
	"github.com/signalbox-dev/signalbox/server/servertest/await"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, goleak.IgnoreCurrent()) }

// workLog is where real workers work: it notes two on one partition, and tokens that fall.
type workLog struct {
	changed chan struct{} // capacity 1

	mu     sync.Mutex
	at     map[int]string
	tokens map[int]uint64
	wrong  []string
}

func newWorkLog() *workLog {
	return &workLog{changed: make(chan struct{}, 1), at: map[int]string{}, tokens: map[int]uint64{}}
}

// work is a worker's, for Run.
func (f *workLog) work(name string) func(context.Context, Partition) {
	return func(ctx context.Context, p Partition) {
		f.mu.Lock()
		if o, taken := f.at[p.Number]; taken {
			f.wrong = append(f.wrong, fmt.Sprintf("%s begins with partition %d while %s works on it", name, p.Number, o))
		}
		if p.Token <= f.tokens[p.Number] {
			f.wrong = append(f.wrong, fmt.Sprintf("%s has partition %d with token %d after %d", name, p.Number,
				p.Token, f.tokens[p.Number]))
		}
		f.at[p.Number], f.tokens[p.Number] = name, p.Token
		f.mu.Unlock()
		select {
		case f.changed <- struct{}{}:
		default:
		}
		<-ctx.Done()
		f.mu.Lock()
		delete(f.at, p.Number)
		f.mu.Unlock()
	}
}

func session(t *testing.T, addrs ...string) *client.Session {
	t.Helper()
	c, err := client.Dial(t.Context(), addrs...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	s, err := c.Session(t.Context(), "/default", client.Timeout(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// spread waits until workers with these weights have their shares of n partitions, and gives who
// has what.
func (f *workLog) spread(t *testing.T, n int, workers map[string]uint32) map[int]string {
	t.Helper()
	names := make([]string, 0, len(workers))
	members := make([]member, 0, len(workers))
	for name, w := range workers {
		names, members = append(names, name), append(members, member{weight: w})
	}
	for over := time.After(await.Limit); ; {
		f.mu.Lock()
		got := make(map[int]string, n)
		owner := make([]int, 0, n)
		for p := range n {
			if name, ok := f.at[p]; ok {
				got[p] = name
				owner = append(owner, slices.Index(names, name))
			}
		}
		wrong := f.wrong
		f.mu.Unlock()
		if len(wrong) > 0 {
			t.Fatal(strings.Join(wrong, "\n"))
		}
		if len(owner) == n && !slices.Contains(owner, -1) && fair(owner, members) {
			return got
		}
		select {
		case <-f.changed:
		case <-over:
			t.Fatalf("%d partitions are not spread over %v: %v", n, names, got)
		}
	}
}

func changed(a, b map[int]string) (n int) {
	for p := range a {
		if a[p] != b[p] {
			n++
		}
	}
	return n
}

// TestWorkersComeAndGo: four workers on a real server come one by one, one of them twice as strong;
// connections break, and the coordinator leaves. Each time the shares are right, what moves is what
// must, and no two ever work on one partition.
func TestWorkersComeAndGo(t *testing.T) {
	t.Parallel()
	const n = 30
	srv := servertest.Start(t, servertest.RealTime())
	ctx, cancel := context.WithTimeout(t.Context(), await.Limit)
	defer cancel()
	f := newWorkLog()
	workers := map[string]*Worker{}
	weights := map[string]uint32{}
	join := func(name string, weight uint32) {
		t.Helper()
		w, err := Join(ctx, session(t, srv.Addr()), "queue", n, Run(f.work(name)), process.Options{Weight: weight, Synchronous: true})
		if err != nil {
			t.Fatal(err)
		}
		workers[name], weights[name] = w, weight
	}
	join("a", 0)
	was := f.spread(t, n, weights)
	join("b", 1)
	now := f.spread(t, n, weights)
	if c := changed(was, now); c != 15 {
		t.Errorf("%d partitions moved to the second worker", c)
	}
	was = now
	join("c", 2)
	now = f.spread(t, n, weights)
	if c := changed(was, now); c != 15 {
		t.Errorf("%d partitions moved to a worker that is as strong as both", c)
	}
	was = now
	srv.DropConnections()
	join("d", 1)
	now = f.spread(t, n, weights)
	if c := changed(was, now); c != 6 {
		t.Errorf("%d partitions moved to the fourth worker", c)
	}
	owners := workers["d"].Owners()
	for p, name := range now {
		if s := owners[p]; s != workers[name].Membership().Session() {
			t.Errorf("partition %d is with %s, and its owner is said to be %d", p, name, s)
		}
	}
	was = now
	if err := workers["a"].Leave(ctx); err != nil { // it coordinates
		t.Fatal(err)
	}
	if held := workers["a"].Held(); len(held) > 0 {
		t.Errorf("who left holds %v", held)
	}
	delete(weights, "a")
	now = f.spread(t, n, weights)
	for p := range was {
		if was[p] != "a" && now[p] != was[p] {
			t.Errorf("partition %d moved from %s to %s", p, was[p], now[p])
		}
	}
	for name := range weights {
		if err := workers[name].Leave(ctx); err != nil {
			t.Fatal(err)
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.at) > 0 || len(f.wrong) > 0 {
		t.Errorf("left: %v; wrong: %v", f.at, f.wrong)
	}
}

// TestElections: in a cluster the shard's master dies while a worker joins, and another time while
// one leaves. The round goes on at the next master, nothing is with two workers, and an operator's
// watch goes on as well.
func TestElections(t *testing.T) {
	t.Parallel()
	const n = 12
	cluster := servertest.StartCluster(t, 3, servertest.Shards(1))
	ctx, cancel := context.WithTimeout(t.Context(), await.Limit)
	defer cancel()
	f := newWorkLog()
	workers, weights := map[string]*Worker{}, map[string]uint32{}
	join := func(s *client.Session, name string) (*Worker, error) {
		return Join(ctx, s, "queue", n, Run(f.work(name)), process.Options{Data: []byte(name), Synchronous: true})
	}
	for _, name := range []string{"a", "b"} {
		w, err := join(session(t, cluster.Addrs()...), name)
		if err != nil {
			t.Fatal(err)
		}
		workers[name], weights[name] = w, 1
	}
	f.spread(t, n, weights)
	third := session(t, cluster.Addrs()...)
	watcher := process.NewOperator(session(t, cluster.Addrs()...).Node(), "queue")
	gone := make(chan error, 1)
	began := make(chan struct{})
	go func() {
		first := true
		for event, err := range watcher.Watch(ctx) {
			if err != nil {
				gone <- err
				return
			}
			if first {
				first = false
				close(began)
			}
			left := event.Change != nil && event.Change.Kind == process.ChangeLeft
			if left || event.Status != nil && len(event.Status.Members) == 2 && string(event.Status.Members[0].Data) == "b" {
				gone <- nil
				return
			}
		}
	}()
	<-began
	during := func(what func() error) {
		t.Helper()
		done := make(chan error, 1)
		go func() { done <- what() }()
		master := cluster.Leader(cluster.Shards()[0])
		cluster.Kill(master)
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		f.spread(t, n, weights)
		cluster.Restart(master)
		cluster.WaitReady()
	}
	weights["c"] = 1
	during(func() (err error) {
		workers["c"], err = join(third, "c")
		return err
	})
	delete(weights, "a")
	during(func() error { return workers["a"].Leave(ctx) })
	if err := <-gone; err != nil {
		t.Errorf("the watch ended: %v", err)
	}
	for name := range weights {
		if err := workers[name].Leave(ctx); err != nil {
			t.Fatal(err)
		}
	}
}

// TestWrongJoin: what is wrong is said before anything is asked of a server.
func TestWrongJoin(t *testing.T) {
	for want, h := range map[string]struct {
		n int
		h Holder
	}{
		"0 partitions; there must be 1 to 10000": {0, Run(nil)}, "10001 partitions": {MaxPartitions + 1, Run(nil)}, "holder is nil": {1, nil},
	} {
		if w, err := Join(t.Context(), nil, "queue", h.n, h.h, process.Options{}); w != nil || err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%v", err)
		}
	}
}

// TestStopsFirst: nobody gets a partition while its former holder's work is still about to stop,
// and who leaves is a member until then.
func TestStopsFirst(t *testing.T) {
	t.Parallel()
	const n = 6
	srv := servertest.Start(t, servertest.RealTime())
	ctx, cancel := context.WithTimeout(t.Context(), await.Limit)
	defer cancel()
	stopping, free := make(chan int, 2*n), make(chan struct{}, 2*n)
	slow := Run(func(ctx context.Context, p Partition) {
		<-ctx.Done()
		stopping <- p.Number
		<-free
	})
	s := session(t, srv.Addr())
	a, err := Join(ctx, s, "queue", n, slow, process.Options{Synchronous: true})
	if err != nil {
		t.Fatal(err)
	}
	f := newWorkLog()
	b, err := Join(ctx, session(t, srv.Addr()), "queue", n, Run(f.work("b")), process.Options{})
	if err != nil {
		t.Fatal(err)
	}
	stop := func(count int) (list []int) {
		t.Helper()
		for range count {
			select {
			case p := <-stopping:
				list = append(list, p)
			case <-ctx.Done():
				t.Fatal("nothing is to be stopped")
			}
		}
		// Nothing is to happen: the server has time to assign a partition wrongly.
		for end := time.Now().Add(50 * time.Millisecond); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
			for _, p := range b.Held() {
				if slices.Contains(list, p) {
					t.Fatalf("partition %d is with two workers", p)
				}
			}
		}
		return list
	}
	moving := stop(n / 2)
	if held := a.Held(); len(held) != n {
		t.Errorf("partitions are given up before their work has stopped: %v are left", held)
	}
	for range moving {
		free <- struct{}{}
	}
	if err := b.Membership().WaitInitial(ctx); err != nil {
		t.Fatal(err)
	}
	if held := b.Held(); len(held) != n/2 {
		t.Errorf("the second worker holds %v", held)
	}
	left := make(chan error, 1)
	go func() { left <- a.Leave(ctx) }()
	stop(n / 2)
	status, err := process.NewOperator(s.Node(), "queue").Describe(ctx)
	if err != nil || len(status.Members) != 2 {
		t.Errorf("%d members while one has work to stop, %v", len(status.Members), err)
	}
	for range n / 2 {
		free <- struct{}{}
	}
	if err := <-left; err != nil {
		t.Fatal(err)
	}
	f.spread(t, n, map[string]uint32{"b": 0})
	if err := b.Leave(ctx); err != nil {
		t.Fatal(err)
	}
}
