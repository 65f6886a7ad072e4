package sdktest

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ydb-platform/ydb-go-genproto/Ydb_RateLimiter_V1"
	"github.com/ydb-platform/ydb-go-genproto/protos/Ydb"
	"github.com/ydb-platform/ydb-go-genproto/protos/Ydb_Operations"
	pbl "github.com/ydb-platform/ydb-go-genproto/protos/Ydb_RateLimiter"
	"github.com/ydb-platform/ydb-go-sdk/v3"
	"github.com/ydb-platform/ydb-go-sdk/v3/ratelimiter"
	"github.com/ydb-platform/ydb-go-sdk/v3/ratelimiter/options"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/signalbox-dev/signalbox/client/ratelimit"
	"github.com/signalbox-dev/signalbox/server/servertest/await"
)

// drr are settings of a resource.
func drr(path string, rate, burst, prefetch, watermark float64) ratelimiter.Resource {
	return ratelimiter.Resource{ResourcePath: path, HierarchicalDrr: ratelimiter.HierarchicalDrrSettings{
		MaxUnitsPerSecond: rate, MaxBurstSizeCoefficient: burst, PrefetchCoefficient: prefetch, PrefetchWatermark: watermark}}
}

// wantStatus fails unless an error has a code of YDB.
func wantStatus(t testing.TB, what string, err error, want Ydb.StatusIds_StatusCode) {
	t.Helper()
	if !ydb.IsOperationError(err, want) {
		t.Errorf("%s: got %v, want %v", what, err, want)
	}
}

// TestResources: resources are made, changed, listed, described and dropped with the Go SDK.
func TestResources(t *testing.T) {
	t.Parallel()
	address, _ := startGateway(t, sharedCluster(t).Addrs())
	db := openSDK(t, address)
	node, ctx := sdkNode(t, db), testContext(t)
	r := db.Ratelimiter()
	for _, x := range []ratelimiter.Resource{
		drr("api", 100.5, 2, 0.3, 0.5), drr("api/a", 50, 0, -1, 0), drr("api/a/deep", 0, 0, 0, 0), drr("other", 1, 0, 0, 0),
	} {
		if err := r.CreateResource(ctx, node, x); err != nil {
			t.Fatal(err)
		}
		got, err := r.DescribeResource(ctx, node, x.ResourcePath)
		if err != nil || *got != x {
			t.Errorf("%+v is described as %+v, %v", x, got, err)
		}
	}
	for _, x := range []struct {
		path      string
		recursive bool
		want      string
	}{{"", false, "api other"}, {"", true, "api api/a api/a/deep other"}, {"api", false, "api"}, {"api/a", true, "api/a api/a/deep"}} {
		list, err := r.ListResource(ctx, node, x.path, x.recursive)
		if slices.Sort(list); err != nil || strings.Join(list, " ") != x.want {
			t.Errorf("list %q recursive %t: %v, %v", x.path, x.recursive, list, err)
		}
	}

	// What the settings mean in the cluster, and what its own clients change, is shown.
	n := nativeNode(t, sharedCluster(t).Addrs(), node)
	status, err := ratelimit.Describe(ctx, n, "api", 0)
	if err != nil || status.Lease != 500*time.Millisecond || status.Resources[0].Config.Burst != 2*time.Second ||
		*status.Resources[1].Config.Rate != 50 {
		t.Fatalf("%+v %v", status, err)
	}
	if err := r.AlterResource(ctx, node, drr("api", 200, 1, 4, 0.75)); err != nil {
		t.Fatal(err)
	}
	if status, err = ratelimit.Describe(ctx, n, "api", 0); err != nil || status.Lease != 4*time.Second || status.Resources[0].Rate != 200 {
		t.Fatalf("%+v %v", status, err)
	}
	s := nativeSession(t, sharedCluster(t).Addrs(), node)
	own := status.Resources[0].Config
	own.Rate, own.Lease, own.Weight = ratelimit.PerSecond(300), 2*time.Second, 7
	if _, err := ratelimit.Alter(ctx, s, "api", 0, own); err != nil {
		t.Fatal(err)
	}
	if got, err := r.DescribeResource(ctx, node, "api"); err != nil || *got != drr("api", 300, 1, 2, 0.75) {
		t.Errorf("%+v %v", got, err)
	}
	if err := r.AlterResource(ctx, node, drr("api", 100, 0, 0, 0)); err != nil {
		t.Fatal(err)
	}
	if status, err = ratelimit.Describe(ctx, n, "api", 0); err != nil || status.Resources[0].Config.Weight != 7 {
		t.Errorf("an alter loses what YDB has no setting for: %+v %v", status, err)
	}

	// What is wrong.
	wantStatus(t, "create again", r.CreateResource(ctx, node, drr("api", 1, 0, 0, 0)), Ydb.StatusIds_ALREADY_EXISTS)
	wantStatus(t, "no parent", r.CreateResource(ctx, node, drr("none/a", 1, 0, 0, 0)), Ydb.StatusIds_NOT_FOUND)
	wantStatus(t, "a root without a rate", r.CreateResource(ctx, node, drr("empty", 0, 0, 0, 0)), Ydb.StatusIds_BAD_REQUEST)
	wantStatus(t, "alter nothing", r.AlterResource(ctx, node, drr("none", 1, 0, 0, 0)), Ydb.StatusIds_NOT_FOUND)
	wantStatus(t, "drop nothing", r.DropResource(ctx, node, "none"), Ydb.StatusIds_NOT_FOUND)
	wantStatus(t, "drop a parent", r.DropResource(ctx, node, "api/a"), Ydb.StatusIds_PRECONDITION_FAILED)
	_, err = r.DescribeResource(ctx, node, "none")
	wantStatus(t, "describe nothing", err, Ydb.StatusIds_NOT_FOUND)
	_, err = r.ListResource(ctx, node, "none", true)
	wantStatus(t, "list nothing", err, Ydb.StatusIds_NOT_FOUND)
	_, err = r.ListResource(ctx, node+"-none", "", true)
	wantStatus(t, "no node", err, Ydb.StatusIds_SCHEME_ERROR)
	for _, x := range []ratelimiter.Resource{
		drr("bad name", 1, 0, 0, 0), drr("", 1, 0, 0, 0), drr("a//b", 1, 0, 0, 0), drr("bad", -1, 0, 0, 0), drr("bad", math.NaN(), 0, 0, 0),
		drr("bad", math.Inf(1), 0, 0, 0), drr("bad", 1, -1, 0, 0), drr("bad", 1, 1e9, 0, 0), drr("bad", 1, 0, 0, 2), drr("bad", 1, 0, math.NaN(), 0),
	} {
		wantStatus(t, x.ResourcePath, r.CreateResource(ctx, node, x), Ydb.StatusIds_BAD_REQUEST)
	}
	for _, path := range []string{"api/a/deep", "api/a", "api", "/other/"} {
		if err := r.DropResource(ctx, node, path); err != nil {
			t.Errorf("drop %s: %v", path, err)
		}
	}
	if list, err := r.ListResource(ctx, node, "", true); err != nil || len(list) != 0 {
		t.Error(list, err)
	}
}

// TestAcquireResource: units are acquired and reported with the Go SDK, and a call that waits for
// too long ends as it asked.
func TestAcquireResource(t *testing.T) {
	t.Parallel()
	address, _ := startGateway(t, sharedCluster(t).Addrs())
	db := openSDK(t, address)
	node, ctx := sdkNode(t, db), testContext(t)
	r := db.Ratelimiter()
	for _, x := range []ratelimiter.Resource{drr("fast", 1000, 0, 0.5, 0), drr("slow", 0.01, 0, 0, 0), drr("tree", 10, 0, 0, 0), drr("tree/leaf", 0, 0, 0, 0)} {
		if err := r.CreateResource(ctx, node, x); err != nil {
			t.Fatal(err)
		}
	}
	// Three callers get what the rate allows, each in its turn.
	began := time.Now()
	var all sync.WaitGroup
	for range 3 {
		all.Go(func() {
			for range 10 {
				if err := r.AcquireResource(ctx, node, "fast", 50, ratelimiter.WithAcquire()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	if took := time.Since(began).Seconds(); 1500 > 1000*took*1.01+1000 {
		t.Errorf("1500 units of 1000 a second in %.2f s", took)
	}
	if err := r.AcquireResource(ctx, node, "fast", 0); err != nil {
		t.Errorf("0 units are free: %v", err)
	}

	// What is reported is never waited for, and later calls wait for it.
	if err := r.AcquireResource(ctx, node, "slow", 2, ratelimiter.WithReport()); err != nil {
		t.Fatal(err)
	}
	timeout, cancelled := ratelimiter.WithOperationTimeout(300*time.Millisecond), ratelimiter.WithOperationCancelAfter(200*time.Millisecond)
	err := r.AcquireResource(ctx, node, "slow", 1, timeout)
	wantStatus(t, "timeout", err, Ydb.StatusIds_TIMEOUT)
	var acquire ratelimiter.AcquireError
	if !errors.As(err, &acquire) || acquire.Amount() != 1 {
		t.Errorf("the SDK does not take it for an acquire error: %v", err)
	}
	wantStatus(t, "cancel", r.AcquireResource(ctx, node, "slow", 1, timeout, cancelled), Ydb.StatusIds_CANCELLED)
	short, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
	defer cancel()
	if err := r.AcquireResource(short, node, "slow", 1); err == nil {
		t.Error("a call whose context has ended was admitted")
	}

	wantStatus(t, "too many", r.AcquireResource(ctx, node, "fast", 1001), Ydb.StatusIds_BAD_REQUEST)
	wantStatus(t, "a parent", r.AcquireResource(ctx, node, "tree", 1), Ydb.StatusIds_PRECONDITION_FAILED)
	wantStatus(t, "nothing", r.AcquireResource(ctx, node, "none", 1), Ydb.StatusIds_NOT_FOUND)
	wantStatus(t, "no node", r.AcquireResource(ctx, node+"-none", "fast", 1), Ydb.StatusIds_SCHEME_ERROR)
	cc := dialRaw(t, address)
	raw := Ydb_RateLimiter_V1.NewRateLimiterServiceClient(cc)
	got, err := raw.AcquireResource(ctx, &pbl.AcquireResourceRequest{CoordinationNodePath: node, ResourcePath: "fast"})
	outcome(t, got.GetOperation(), err, Ydb.StatusIds_BAD_REQUEST, nil)
	got, err = raw.AcquireResource(ctx, &pbl.AcquireResourceRequest{CoordinationNodePath: node, ResourcePath: "fast",
		Units: &pbl.AcquireResourceRequest_Required{Required: math.MaxUint64}})
	outcome(t, got.GetOperation(), err, Ydb.StatusIds_BAD_REQUEST, nil)
	got, err = raw.AcquireResource(ctx, &pbl.AcquireResourceRequest{CoordinationNodePath: node, ResourcePath: "/slow",
		Units:           &pbl.AcquireResourceRequest_Required{Required: 1},
		OperationParams: &Ydb_Operations.OperationParams{OperationTimeout: durationpb.New(time.Millisecond)}})
	outcome(t, got.GetOperation(), err, Ydb.StatusIds_TIMEOUT, nil)

	// A resource that is dropped while a call waits.
	waited := make(chan error, 1)
	go func() { waited <- r.AcquireResource(ctx, node, "slow", 1, ratelimiter.WithOperationTimeout(patience)) }()
	if err := r.DropResource(ctx, node, "slow"); err != nil {
		t.Fatal(err)
	}
	wantStatus(t, "dropped", <-waited, Ydb.StatusIds_NOT_FOUND)
}

// TestAcquireIsGivenUp: calls wait in the cluster's queue, and leave it when their callers hang up or their
// operations end.
func TestAcquireIsGivenUp(t *testing.T) {
	t.Parallel()
	address, _ := startGateway(t, sharedCluster(t).Addrs())
	db := openSDK(t, address)
	node, ctx := sdkNode(t, db), testContext(t)
	r := db.Ratelimiter()
	if err := r.CreateResource(ctx, node, drr("slow", 0.001, 0, 0, 0)); err != nil { // a unit each 1,000 s
		t.Fatal(err)
	}
	for range 2 { // the first one may have the burst
		if err := r.AcquireResource(ctx, node, "slow", 1, ratelimiter.WithOperationTimeout(time.Second)); err != nil {
			wantStatus(t, "the burst", err, Ydb.StatusIds_TIMEOUT)
		}
	}
	n := nativeNode(t, sharedCluster(t).Addrs(), node)
	waiting := func(what string, holds func(units float64) bool) {
		t.Helper()
		await.Seen(t, what, func() (float64, bool) {
			d, err := ratelimit.Describe(ctx, n, "slow", 0)
			if err != nil {
				t.Fatal(err)
			}
			return d.Resources[0].Waiting, holds(d.Resources[0].Waiting)
		})
	}
	var all sync.WaitGroup
	defer all.Wait()
	stay, end := context.WithCancel(ctx)
	defer end()
	wait := func(ctx context.Context, options ...options.AcquireOption) {
		all.Go(func() {
			if err := r.AcquireResource(ctx, node, "slow", 1, options...); err == nil {
				t.Error("a call is admitted that has no units")
			}
		})
	}
	wait(stay)
	waiting("one that stays", func(units float64) bool { return units == 1 })
	gone, hangUp := context.WithCancel(ctx)
	defer hangUp()
	for range 4 {
		wait(gone)
		wait(stay, ratelimiter.WithOperationTimeout(time.Second))
	}
	waiting("all", func(units float64) bool { return units > 5 })
	hangUp()
	waiting("the one that stays", func(units float64) bool { return units == 1 })
}

// TestAcquireWhileLeadersChange: callers of two gateways share a limit while a leader is killed, and
// none sees it.
func TestAcquireWhileLeadersChange(t *testing.T) {
	t.Parallel()
	cluster, one := ownCluster(t)
	two, _ := startGateway(t, cluster.Addrs())
	dbs := []*ydb.Driver{openSDK(t, one), openSDK(t, two)}
	node, ctx := sdkNode(t, dbs[0]), testContext(t)
	if err := dbs[0].Ratelimiter().CreateResource(ctx, node, drr("api", 200, 0, 1, 0)); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	var all sync.WaitGroup
	started := make(chan struct{}, 100)
	for _, db := range dbs {
		all.Go(func() {
			for range 60 {
				if err := db.Ratelimiter().AcquireResource(ctx, node, "api", 5); err != nil {
					t.Error(err)
				}
				select {
				case started <- struct{}{}:
				default:
				}
			}
		})
	}
	for range 10 {
		<-started
	}
	restart := killALeader(t, cluster)
	all.Wait()
	restart()
	if took := time.Since(began).Seconds(); 600 > 200*took*1.01+200 {
		t.Errorf("600 units of 200 a second in %.2f s", took)
	}
}
