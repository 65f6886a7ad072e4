package sdktest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/server/servertest/await"
	"github.com/ydb-platform/ydb-go-sdk/v3"
	"github.com/ydb-platform/ydb-go-sdk/v3/coordination"
	"github.com/ydb-platform/ydb-go-sdk/v3/coordination/options"

	"github.com/signalbox-dev/signalbox/server/servertest"
)

// openSDK connects YDB's Go SDK.
func openSDK(t testing.TB, address string, opts ...ydb.Option) *ydb.Driver {
	t.Helper()
	db, err := ydb.Open(testContext(t), "grpc://"+address+"/local", opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close(context.Background()) })
	return db
}

// exampleConfig is that of the examples in YDB's SDK.
var exampleConfig = coordination.NodeConfig{
	SelfCheckPeriodMillis: 1000, SessionGracePeriodMillis: 1000,
	ReadConsistencyMode:     coordination.ConsistencyModeStrict,
	AttachConsistencyMode:   coordination.ConsistencyModeStrict,
	RatelimiterCountersMode: coordination.RatelimiterCountersModeDetailed,
}

func sdkNode(t testing.TB, db *ydb.Driver) string {
	t.Helper()
	path := "/local/" + strings.ReplaceAll(t.Name(), "/", "-")
	if err := db.Coordination().CreateNode(testContext(t), path, exampleConfig); err != nil {
		t.Fatal(err)
	}
	return path
}

func sdkSession(t testing.TB, db *ydb.Driver, path string, opts ...options.SessionOption) coordination.Session {
	t.Helper()
	s, err := db.Coordination().Session(testContext(t), path, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		_ = s.Close(ctx)
	})
	return s
}

// killALeader kills the instance that leads most shards, and gives it back with a function.
func killALeader(t testing.TB, c *servertest.Cluster) (restart func()) {
	t.Helper()
	leads := make(map[int]int)
	most := c.Leader(c.Shards()[0])
	for _, shard := range c.Shards() {
		l := c.Leader(shard)
		if leads[l]++; leads[l] > leads[most] {
			most = l
		}
	}
	t.Logf("killing instance %d, which leads %d of %d data shards", most, leads[most], len(c.Shards()))
	c.Kill(most)
	return func() { c.Restart(most) }
}

// TestSDK goes through the Go SDK's calls: semaphores, descriptions, watches, reconnects.
func TestSDK(t *testing.T) {
	t.Parallel()
	address, _ := startGateway(t, sharedCluster(t).Addrs())
	db := openSDK(t, address)
	path := sdkNode(t, db)
	ctx := testContext(t)
	entry, config, err := db.Coordination().DescribeNode(ctx, path)
	if err != nil || !entry.IsCoordinationNode() || config.SelfCheckPeriodMillis != 1000 {
		t.Fatal(entry, config, err)
	}
	if _, _, err := db.Coordination().DescribeNode(ctx, path+"-none"); !ydb.IsOperationErrorSchemeError(err) {
		t.Fatal(err)
	}
	if who, err := db.Discovery().WhoAmI(ctx); err != nil || who.User == "" {
		t.Fatal(who, err)
	}
	s := sdkSession(t, db, path)
	if err := s.CreateSemaphore(ctx, "sem", 20, options.WithCreateData([]byte{1, 2, 3})); err != nil {
		t.Fatal(err)
	}
	lease, err := s.AcquireSemaphore(ctx, "sem", 10, options.WithAcquireData([]byte("mine")))
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		s.Reconnect()
		d, err := s.DescribeSemaphore(ctx, "sem", options.WithDescribeOwners(true), options.WithDescribeWaiters(true))
		if err != nil || d.Count != 10 || d.Limit != 20 || len(d.Owners) != 1 || string(d.Owners[0].Data) != "mine" ||
			d.Owners[0].SessionID != s.SessionID() {
			t.Fatal(d, err)
		}
	}

	// A watch of data, which an acquire does not fire.
	changed := make(chan options.SemaphoreWatchEvent, 1)
	watch := func(flags options.SemaphoreWatchFlag) {
		t.Helper()
		notify := func(e options.SemaphoreWatchEvent) { changed <- e }
		if _, err := s.DescribeSemaphore(ctx, "sem", options.WithSemaphoreWatch(flags, notify)); err != nil {
			t.Fatal(err)
		}
	}
	event := func() options.SemaphoreWatchEvent {
		t.Helper()
		select {
		case e := <-changed:
			return e
		case <-ctx.Done():
			t.Fatal("the watch does not fire")
			panic("unreachable")
		}
	}
	other := sdkSession(t, db, path)
	watch(options.WatchData)
	theirs, err := other.AcquireSemaphore(ctx, "sem", 10)
	if err != nil {
		t.Fatal(err)
	}
	if err := other.UpdateSemaphore(ctx, "sem", options.WithUpdateData([]byte("v2"))); err != nil {
		t.Fatal(err)
	}
	if e := event(); e != (options.SemaphoreWatchEvent{DataChanged: true}) {
		t.Fatal(e)
	}
	watch(options.WatchOwners)
	watch(options.WatchOwners) // takes the place of the first one
	if e := event(); !e.Lost {
		t.Fatal(e)
	}
	if err := theirs.Release(); err != nil {
		t.Fatal(err)
	}
	if e := event(); e != (options.SemaphoreWatchEvent{OwnersChanged: true}) {
		t.Fatal(e)
	}

	// A wait that is given up, by time and by its context.
	_, err = other.AcquireSemaphore(ctx, "sem", 15, options.WithAcquireTimeout(50*time.Millisecond))
	if err != coordination.ErrAcquireTimeout {
		t.Fatal(err)
	}
	brief, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
	_, err = other.AcquireSemaphore(brief, "sem", 15)
	cancel()
	if err == nil {
		t.Fatal("15 units of 10 were acquired")
	}
	if _, err := other.AcquireSemaphore(ctx, "sem", 10); err != nil { // it left the queue
		t.Fatal(err)
	}
	if err := lease.Release(); err != nil {
		t.Fatal(err)
	}
	if err := s.DeleteSemaphore(ctx, "sem", options.WithForceDelete(true)); err != nil {
		t.Fatal(err)
	}
}

// TestSDKRestore: while leaders are killed, the Go SDK restores its session again and again. What
// it holds stays, and the watch that it arms then tells of the next change.
func TestSDKRestore(t *testing.T) {
	t.Parallel()
	cluster, address := ownCluster(t)
	db := openSDK(t, address)
	path := sdkNode(t, db)
	ctx := testContext(t)
	s, other := sdkSession(t, db, path), sdkSession(t, db, path)
	if err := s.CreateSemaphore(ctx, "sem", 2); err != nil {
		t.Fatal(err)
	}
	lease, err := s.AcquireSemaphore(ctx, "sem", 1, options.WithAcquireData([]byte("mine")))
	if err != nil {
		t.Fatal(err)
	}
	id := s.SessionID()
	for round := range 2 {
		restart := killALeader(t, cluster)
		s.Reconnect()
		changed := make(chan options.SemaphoreWatchEvent, 1)
		notify := func(e options.SemaphoreWatchEvent) { changed <- e }
		d, err := s.DescribeSemaphore(ctx, "sem",
			options.WithDescribeOwners(true), options.WithSemaphoreWatch(options.WatchData, notify))
		if err != nil || len(d.Owners) != 1 || string(d.Owners[0].Data) != "mine" || d.Owners[0].SessionID != id {
			t.Fatal(d, err)
		}
		if err := other.UpdateSemaphore(ctx, "sem", options.WithUpdateData(fmt.Append(nil, round))); err != nil {
			t.Fatal(err)
		}
		select {
		case e := <-changed:
			if !e.DataChanged && !e.Lost {
				t.Fatal(e)
			}
		case <-ctx.Done():
			t.Fatal("the watch does not fire")
		}
		restart()
		cluster.WaitReady()
	}
	if lease.Context().Err() != nil || s.SessionID() != id {
		t.Fatal(lease.Context().Err(), s.SessionID(), id)
	}
	if err := lease.Release(); err != nil {
		t.Fatal(err)
	}
}

// TestSDKDiscovery is the recipe of service discovery: members publish their addresses as data of
// their entries, and watchers see all of them, while a leader is killed.
func TestSDKDiscovery(t *testing.T) {
	t.Parallel()
	cluster, address := ownCluster(t)
	db := openSDK(t, address)
	path := sdkNode(t, db)
	ctx := testContext(t)
	watcher := sdkSession(t, db, path)
	if err := watcher.CreateSemaphore(ctx, "endpoints", coordination.MaxSemaphoreLimit); err != nil {
		t.Fatal(err)
	}
	members := func() []string {
		changed := make(chan struct{}, 1)
		notify := func(options.SemaphoreWatchEvent) { changed <- struct{}{} }
		d, err := watcher.DescribeSemaphore(ctx, "endpoints",
			options.WithDescribeOwners(true), options.WithSemaphoreWatch(options.WatchOwners, notify))
		if err != nil {
			t.Fatal(err)
		}
		var list []string
		for _, o := range d.Owners {
			list = append(list, string(o.Data))
		}
		slices.Sort(list)
		return list
	}
	sees := func(want ...string) {
		t.Helper()
		await.True(t, fmt.Sprint("members ", want), func() bool { return slices.Equal(members(), want) })
	}
	join := func(name string) coordination.Session {
		t.Helper()
		s := sdkSession(t, db, path)
		if _, err := s.AcquireSemaphore(ctx, "endpoints", 1, options.WithAcquireData([]byte(name))); err != nil {
			t.Fatal(err)
		}
		return s
	}
	join("a")
	b := join("b")
	sees("a", "b")
	restart := killALeader(t, cluster)
	join("c")
	sees("a", "b", "c")
	if err := b.Close(ctx); err != nil {
		t.Fatal(err)
	}
	sees("a", "c")
	restart()

	// Configuration: one value, and everybody gets each of its last states.
	if err := watcher.CreateSemaphore(ctx, "config", 1, options.WithCreateData([]byte("v0"))); err != nil {
		t.Fatal(err)
	}
	var readers sync.WaitGroup
	for range 3 {
		s := sdkSession(t, db, path)
		readers.Go(func() {
			for {
				changed := make(chan struct{}, 1)
				notify := func(options.SemaphoreWatchEvent) { changed <- struct{}{} }
				d, err := s.DescribeSemaphore(ctx, "config", options.WithSemaphoreWatch(options.WatchData, notify))
				if err != nil {
					t.Error(err)
					return
				}
				if string(d.Data) == "v20" {
					return
				}
				select {
				case <-changed:
				case <-ctx.Done():
					t.Error("a change of the configuration did not arrive")
					return
				}
			}
		})
	}
	for i := range 20 {
		if i == 10 {
			defer killALeader(t, cluster)()
		}
		data := fmt.Appendf(nil, "v%d", i+1)
		if err := watcher.UpdateSemaphore(ctx, "config", options.WithUpdateData(data)); err != nil {
			t.Fatal(err)
		}
	}
	readers.Wait()
}

// candidate is one of those that elect a leader: it leads, writes down when, and gives up after a
// while.
type candidate struct {
	name string
	log  *termLog
}

// term is the time for which a candidate believed that it leads.
type term struct {
	of       string
	from, to time.Time
}

type termLog struct {
	mu    sync.Mutex
	terms []term
}

func (l *termLog) add(x term) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.terms = append(l.terms, x)
}

func (l *termLog) len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.terms)
}

// check fails if two led at once. The longest time without a leader is returned.
func (l *termLog) check(t testing.TB) (longest time.Duration) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	slices.SortFunc(l.terms, func(a, b term) int { return a.from.Compare(b.from) })
	for i := 1; i < len(l.terms); i++ {
		a, b := l.terms[i-1], l.terms[i]
		if b.from.Before(a.to) {
			t.Errorf("%s led from %v on, and %s until %v after that", b.of, b.from, a.of, a.to.Sub(b.from))
		}
		longest = max(longest, b.from.Sub(a.to))
	}
	return longest
}

// run leads again and again until ctx ends. A lease that ends by itself ends the term at once.
func (c candidate) run(ctx context.Context, t testing.TB, db *ydb.Driver, path string) {
	for ctx.Err() == nil {
		s, err := db.Coordination().Session(ctx, path,
			options.WithDescription(c.name), options.WithSessionTimeout(electionTimeout))
		if err != nil {
			continue // ctx, or the gateway is away
		}
		for ctx.Err() == nil && s.Context().Err() == nil {
			lease, err := s.AcquireSemaphore(ctx, "leader", coordination.Exclusive,
				options.WithEphemeral(true), options.WithAcquireData([]byte(c.name)))
			if err != nil {
				break
			}
			from := time.Now()
			select {
			case <-lease.Context().Done():
			case <-time.After(termLength):
			}
			c.log.add(term{of: c.name, from: from, to: time.Now()})
			_ = lease.Release()
		}
		closing, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		_ = s.Close(closing)
		cancel()
	}
}

const (
	electionTimeout = 5 * time.Second
	termLength      = 50 * time.Millisecond
)

// elect has ten clients elect a leader among themselves, until end. By their own logs there are
// never two at once.
func elect(t *testing.T, gateways ...string) (log *termLog, end func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(testContext(t))
	path := sdkNode(t, openSDK(t, gateways[0]))
	log = new(termLog)
	var all sync.WaitGroup
	for i := range 10 {
		db := openSDK(t, gateways[i%len(gateways)])
		all.Go(func() { candidate{name: fmt.Sprintf("c%d", i), log: log}.run(ctx, t, db, path) })
	}
	return log, func() {
		t.Helper()
		cancel()
		all.Wait()
		longest := log.check(t)
		t.Logf("%d terms, at most %v without a leader", log.len(), longest.Round(time.Millisecond))
	}
}

// TestSDKElection: ten clients elect a leader among themselves while leaders of the cluster are
// killed. By their own logs there are never two at once.
func TestSDKElection(t *testing.T) {
	t.Parallel()
	cluster, one := ownCluster(t)
	two, _ := startGateway(t, cluster.Addrs())
	log, end := elect(t, one, two)
	for range 2 {
		before := log.len()
		await.True(t, "an election", func() bool { return log.len() >= before+10 })
		restart := killALeader(t, cluster)
		before = log.len()
		await.True(t, "an election without the leader", func() bool { return log.len() >= before+10 })
		restart()
		cluster.WaitReady()
	}
	end()
}

// TestSDKKilledGateway: the gateway of ten clients that elect a leader is killed. They go on at the
// other gateway, and by their own logs there are never two leaders at once.
func TestSDKKilledGateway(t *testing.T) {
	t.Parallel()
	endpoints := sharedCluster(t).Addrs()
	second, _ := startGateway(t, endpoints)
	first, kill := gatewayProcess(t, second, endpoints)
	log, end := elect(t, first)
	await.True(t, "an election", func() bool { return log.len() >= 10 })
	kill()
	before := log.len()
	await.True(t, "an election at the other gateway", func() bool { return log.len() >= before+10 })
	end()
}
