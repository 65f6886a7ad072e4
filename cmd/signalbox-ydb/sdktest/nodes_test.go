package sdktest

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ydb-platform/ydb-go-genproto/Ydb_Discovery_V1"
	"github.com/ydb-platform/ydb-go-genproto/Ydb_Scheme_V1"
	"github.com/ydb-platform/ydb-go-genproto/Ydb_Table_V1"
	"github.com/ydb-platform/ydb-go-genproto/protos/Ydb"
	pb "github.com/ydb-platform/ydb-go-genproto/protos/Ydb_Coordination"
	"github.com/ydb-platform/ydb-go-genproto/protos/Ydb_Discovery"
	"github.com/ydb-platform/ydb-go-genproto/protos/Ydb_Operations"
	"github.com/ydb-platform/ydb-go-genproto/protos/Ydb_Scheme"
	"github.com/ydb-platform/ydb-go-genproto/protos/Ydb_Table"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	grpcstatus "google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/admin"
	"github.com/signalbox-dev/signalbox/client/process"
	"github.com/signalbox-dev/signalbox/client/rollout"
	"github.com/signalbox-dev/signalbox/cmd/signalbox-ydb/gateway"
)

// outcome checks the envelope of a call.
func outcome(
	t testing.TB, op *Ydb_Operations.Operation, err error, want Ydb.StatusIds_StatusCode, result proto.Message,
) {
	t.Helper()
	if err != nil || !op.GetReady() || op.GetStatus() != want {
		t.Fatalf("got %v %v, want %v", op, err, want)
	}
	if want != Ydb.StatusIds_SUCCESS && (len(op.GetIssues()) != 1 || len(op.GetIssues()[0].GetMessage()) < 10) {
		t.Fatalf("%v does not say what is wrong", op)
	}
	if result != nil {
		if err := op.GetResult().UnmarshalTo(result); err != nil {
			t.Fatal(err)
		}
	}
}

func dropNode(t testing.TB, cc *grpc.ClientConn, path string) {
	t.Helper()
	got, err := coordinationOf(cc).DropNode(testContext(t), &pb.DropNodeRequest{Path: path})
	outcome(t, got.GetOperation(), err, Ydb.StatusIds_SUCCESS, nil)
}

func TestNodes(t *testing.T) {
	t.Parallel()
	address, _ := startGateway(t, sharedCluster(t).Addrs())
	cc := dialRaw(t, address)
	ctx := testContext(t)
	c := coordinationOf(cc)
	describe := func(path string, names bool) (*Ydb_Operations.Operation, error) {
		req := &pb.DescribeNodeRequest{Path: path}
		if names { // include_semaphore_names, which the Go protobufs do not know
			tag := protowire.AppendTag(nil, 3, protowire.VarintType)
			req.ProtoReflect().SetUnknown(protowire.AppendVarint(tag, 1))
		}
		got, err := c.DescribeNode(ctx, req)
		return got.GetOperation(), err
	}
	create := func(path string, config *pb.Config) (*Ydb_Operations.Operation, error) {
		got, err := c.CreateNode(ctx, &pb.CreateNodeRequest{Path: path, Config: config})
		return got.GetOperation(), err
	}
	path := "/local/nodes/one"
	op, err := describe(path, false)
	outcome(t, op, err, Ydb.StatusIds_SCHEME_ERROR, nil)
	// The values of YDB's examples: a grace period of the self-check period's length is too short
	// for the cluster. It is made longer in effect, and described as it was given.
	op, err = create(path, &pb.Config{
		SelfCheckPeriodMillis: 1000, SessionGracePeriodMillis: 1000,
		ReadConsistencyMode:     pb.ConsistencyMode_CONSISTENCY_MODE_STRICT,
		AttachConsistencyMode:   pb.ConsistencyMode_CONSISTENCY_MODE_STRICT,
		RateLimiterCountersMode: pb.RateLimiterCountersMode_RATE_LIMITER_COUNTERS_MODE_DETAILED,
	})
	outcome(t, op, err, Ydb.StatusIds_SUCCESS, nil)
	op, err = create(path, nil) // again, and nothing changes
	outcome(t, op, err, Ydb.StatusIds_SUCCESS, nil)
	var got pb.DescribeNodeResult
	op, err = describe(path, false)
	outcome(t, op, err, Ydb.StatusIds_SUCCESS, &got)
	want := &pb.DescribeNodeResult{
		Self: &Ydb_Scheme.Entry{Name: "one", Type: Ydb_Scheme.Entry_COORDINATION_NODE},
		Config: &pb.Config{
			Path: path, SelfCheckPeriodMillis: 1000, SessionGracePeriodMillis: 1000,
			ReadConsistencyMode:     pb.ConsistencyMode_CONSISTENCY_MODE_STRICT,
			AttachConsistencyMode:   pb.ConsistencyMode_CONSISTENCY_MODE_STRICT,
			RateLimiterCountersMode: pb.RateLimiterCountersMode_RATE_LIMITER_COUNTERS_MODE_DETAILED,
		},
	}
	if !proto.Equal(&got, want) {
		t.Fatalf("got %v, want %v", &got, want)
	}
	altered, err := c.AlterNode(ctx, &pb.AlterNodeRequest{Path: path, Config: &pb.Config{
		SelfCheckPeriodMillis: 5000, ReadConsistencyMode: pb.ConsistencyMode_CONSISTENCY_MODE_RELAXED,
	}})
	outcome(t, altered.GetOperation(), err, Ydb.StatusIds_SUCCESS, nil)
	altered, err = c.AlterNode(ctx, &pb.AlterNodeRequest{Path: path + "-none"})
	outcome(t, altered.GetOperation(), err, Ydb.StatusIds_SCHEME_ERROR, nil)
	inEffect := func() (selfCheck, grace time.Duration) {
		t.Helper()
		cl, err := client.Dial(ctx, sharedCluster(t).Addrs()...)
		if err != nil {
			t.Fatal(err)
		}
		defer cl.Close()
		info, err := admin.Nodes(cl).Describe(ctx, strings.TrimPrefix(path, "/local"))
		if err != nil {
			t.Fatal(err)
		}
		return *info.Config.SelfCheckPeriod, *info.Config.GracePeriod
	}
	if selfCheck, grace := inEffect(); selfCheck != 5*time.Second || grace != 6*time.Second {
		t.Fatal(selfCheck, grace)
	}

	s := newSession(t, cc, path)
	for i := range uint64(30) {
		s.create(i, fmt.Sprintf("sem-%02d", 29-i), 1, "")
		s.expect(fmt.Sprintf("%d created", i))
	}
	op, err = describe(path, true)
	outcome(t, op, err, Ydb.StatusIds_SUCCESS, &got)
	var names []string
	for b := []byte(got.ProtoReflect().GetUnknown()); len(b) > 0; {
		number, _, n := protowire.ConsumeTag(b)
		name, m := protowire.ConsumeString(b[n:])
		if number != 3 || m < 0 {
			t.Fatal(got.ProtoReflect().GetUnknown())
		}
		names, b = append(names, name), b[n+m:]
	}
	if len(names) != 30 || !slices.IsSorted(names) {
		t.Fatal(names)
	}
	if c := got.GetConfig(); c.GetSelfCheckPeriodMillis() != 5000 || c.GetSessionGracePeriodMillis() != 1000 ||
		c.GetReadConsistencyMode() != pb.ConsistencyMode_CONSISTENCY_MODE_RELAXED {
		t.Fatal(got.GetConfig())
	}
	for _, bad := range []string{"relative", "/elsewhere/x", "/local", "/local/a b", "/locale/x", ""} {
		op, err = create(bad, nil)
		outcome(t, op, err, Ydb.StatusIds_BAD_REQUEST, nil)
	}
	dropped, err := c.DropNode(ctx, &pb.DropNodeRequest{Path: "/local/nodes"})
	outcome(t, dropped.GetOperation(), err, Ydb.StatusIds_PRECONDITION_FAILED, nil)
	dropNode(t, cc, path)
	dropped, err = c.DropNode(ctx, &pb.DropNodeRequest{Path: path})
	outcome(t, dropped.GetOperation(), err, Ydb.StatusIds_SCHEME_ERROR, nil)
}

// TestNodeSettings: what is not given reads back so, and what is out of range is described as it was
// given. What signalbox's own clients change later is described as they changed it.
func TestNodeSettings(t *testing.T) {
	t.Parallel()
	address, _ := startGateway(t, sharedCluster(t).Addrs())
	cc := dialRaw(t, address)
	ctx := testContext(t)
	c := coordinationOf(cc)
	native, err := client.Dial(ctx, sharedCluster(t).Addrs()...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(native.CloseWithoutRelease)
	describe := func(path string) string {
		t.Helper()
		got, err := c.DescribeNode(ctx, &pb.DescribeNodeRequest{Path: path})
		var result pb.DescribeNodeResult
		outcome(t, got.GetOperation(), err, Ydb.StatusIds_SUCCESS, &result)
		info, err := admin.Nodes(native).Describe(ctx, strings.TrimPrefix(path, "/local"))
		if err != nil {
			t.Fatal(err)
		}
		x, e := result.GetConfig(), info.Config
		return fmt.Sprintf("%d %d %d %d %d in effect %v %v %d %d %d", x.GetSelfCheckPeriodMillis(), x.GetSessionGracePeriodMillis(),
			x.GetReadConsistencyMode(), x.GetAttachConsistencyMode(), x.GetRateLimiterCountersMode(),
			*e.SelfCheckPeriod, *e.GracePeriod, *e.ReadConsistency, *e.AttachConsistency, *e.CountersMode)
	}
	for i, x := range []struct {
		config *pb.Config
		want   string
	}{
		{nil, "0 0 0 0 0 in effect 1s 10s 2 1 1"},
		{&pb.Config{SessionGracePeriodMillis: 1000, ReadConsistencyMode: 1, AttachConsistencyMode: 2},
			"0 1000 1 2 0 in effect 1s 2s 1 2 1"},
		{&pb.Config{SelfCheckPeriodMillis: 1, SessionGracePeriodMillis: 1}, "1 1 0 0 0 in effect 500ms 1.5s 2 1 1"},
		{&pb.Config{SelfCheckPeriodMillis: 1 << 31, SessionGracePeriodMillis: 1 << 31, RateLimiterCountersMode: 2},
			"2147483648 2147483648 0 0 2 in effect 10s 30s 2 1 2"},
	} {
		path := fmt.Sprintf("/local/settings/%d", i)
		got, err := c.CreateNode(ctx, &pb.CreateNodeRequest{Path: path, Config: x.config})
		outcome(t, got.GetOperation(), err, Ydb.StatusIds_SUCCESS, nil)
		if got := describe(path); got != x.want {
			t.Errorf("got %s, want %s", got, x.want)
		}
	}
	path := "/local/settings/1"
	alter := func(config *pb.Config, want string) {
		t.Helper()
		got, err := c.AlterNode(ctx, &pb.AlterNodeRequest{Path: path, Config: config})
		outcome(t, got.GetOperation(), err, Ydb.StatusIds_SUCCESS, nil)
		if got := describe(path); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	alter(&pb.Config{RateLimiterCountersMode: 1}, "0 1000 1 2 1 in effect 1s 2s 1 2 1")
	alter(&pb.Config{SelfCheckPeriodMillis: 5000}, "5000 1000 1 2 1 in effect 5s 6s 1 2 1")
	if _, err := admin.Nodes(native).Alter(ctx, "/settings/1", admin.NodeConfig{GracePeriod: new(20 * time.Second)}); err != nil {
		t.Fatal(err)
	}
	alter(&pb.Config{SelfCheckPeriodMillis: 2000}, "2000 20000 1 2 1 in effect 2s 20s 1 2 1")
	if _, err := admin.Nodes(native).Create(ctx, "/settings/own", admin.NodeConfig{}); err != nil {
		t.Fatal(err)
	}
	if got, want := describe("/local/settings/own"), "1000 10000 2 1 1 in effect 1s 10s 2 1 1"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestScheme(t *testing.T) {
	t.Parallel()
	address, _ := startGateway(t, sharedCluster(t).Addrs())
	cc := dialRaw(t, address)
	ctx := testContext(t)
	c := Ydb_Scheme_V1.NewSchemeServiceClient(cc)
	list := func(path string, want Ydb.StatusIds_StatusCode) string {
		t.Helper()
		got, err := c.ListDirectory(ctx, &Ydb_Scheme.ListDirectoryRequest{Path: path})
		var result Ydb_Scheme.ListDirectoryResult
		outcome(t, got.GetOperation(), err, want, nil)
		if want != Ydb.StatusIds_SUCCESS {
			return ""
		}
		outcome(t, got.GetOperation(), err, want, &result)
		line := fmt.Sprintf("%s:%s", result.GetSelf().GetName(), result.GetSelf().GetType())
		for _, e := range result.GetChildren() {
			line += fmt.Sprintf(" %s:%s", e.GetName(), e.GetType())
		}
		return line
	}
	list("/local/scheme", Ydb.StatusIds_SCHEME_ERROR)
	for _, path := range []string{"scheme/b/deep/er", "scheme/a", "scheme/b-2", "scheme/a", ""} {
		got, err := c.MakeDirectory(ctx, &Ydb_Scheme.MakeDirectoryRequest{Path: "/local/" + path})
		outcome(t, got.GetOperation(), err, Ydb.StatusIds_SUCCESS, nil)
	}
	want := "scheme:DIRECTORY a:COORDINATION_NODE b:DIRECTORY b-2:COORDINATION_NODE"
	if got := list("/local/scheme/", Ydb.StatusIds_SUCCESS); got != want {
		t.Fatalf("got %s, want %s", got, want)
	}
	got := list("/local", Ydb.StatusIds_SUCCESS)
	if !strings.HasPrefix(got, "local:DATABASE ") || !strings.Contains(got, " scheme:DIRECTORY") {
		t.Fatal(got)
	}
	remove := func(path string, want Ydb.StatusIds_StatusCode) {
		t.Helper()
		got, err := c.RemoveDirectory(ctx, &Ydb_Scheme.RemoveDirectoryRequest{Path: path})
		outcome(t, got.GetOperation(), err, want, nil)
	}
	remove("/local/scheme/b", Ydb.StatusIds_PRECONDITION_FAILED)
	s := newSession(t, cc, "/local/scheme/a")
	remove("/local/scheme/a", Ydb.StatusIds_PRECONDITION_FAILED)
	s.stop()
	s.expect("stopped")
	remove("/local/scheme/a", Ydb.StatusIds_SUCCESS)
	remove("/local/scheme/a", Ydb.StatusIds_SCHEME_ERROR)
}

// TestRemoveDirectoryInUse: what only signalbox's own clients see of a node keeps it from being
// removed too, after all sessions have ended.
func TestRemoveDirectoryInUse(t *testing.T) {
	t.Parallel()
	cc, path := oneGateway(t)
	ctx := testContext(t)
	c, err := client.Dial(ctx, sharedCluster(t).Addrs()...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.CloseWithoutRelease)
	session := func() *client.Session {
		s, err := c.Session(ctx, strings.TrimPrefix(path, "/local"))
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	end := func(s *client.Session) {
		if err := s.Close(ctx); err != nil {
			t.Fatal(err)
		}
	}
	remove := func(why string) {
		t.Helper()
		c := Ydb_Scheme_V1.NewSchemeServiceClient(cc)
		got, err := c.RemoveDirectory(ctx, &Ydb_Scheme.RemoveDirectoryRequest{Path: path})
		outcome(t, got.GetOperation(), err, Ydb.StatusIds_PRECONDITION_FAILED, nil)
		if text := fmt.Sprint(got.GetOperation().GetIssues()); !strings.Contains(text, why) {
			t.Fatalf("%s, and not %s", text, why)
		}
	}
	s := session()
	remove("sessions")
	member, err := process.Join(ctx, s, "rebalance", coordinator{}, process.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := member.WaitInitial(ctx); err != nil {
		t.Fatal(err)
	}
	config := rollout.Config{Source: rollout.Published, Locations: []rollout.Location{{Name: "here"}}}
	if _, err := rollout.NewTrack(s, "geo/base").Create(ctx, config); err != nil {
		t.Fatal(err)
	}
	end(s)
	remove("rollouts")
	s = session()
	if err := rollout.NewTrack(s, "geo/base").Delete(ctx, true); err != nil {
		t.Fatal(err)
	}
	end(s)
	remove("processes")
}

// coordinator completes each round of a process at once.
type coordinator struct{ process.BaseHandler }

func (coordinator) Prepare(*process.Round) error      { return nil }
func (coordinator) Coordinate(r *process.Round) error { return r.Complete(nil) }

func TestDiscovery(t *testing.T) {
	t.Parallel()
	var log lineLog
	address, _ := startGateway(t, sharedCluster(t).Addrs(), func(c *gateway.Config) {
		c.Advertise = []string{"a.example:2136", "b.example:2137", "[2001:db8::1]:2136", "192.0.2.1:2136"}
		c.Logger = slog.New(slog.NewTextHandler(&log, nil))
	})
	cc := dialRaw(t, address)
	ctx := testContext(t)
	c := Ydb_Discovery_V1.NewDiscoveryServiceClient(cc)
	here := metadata.AppendToOutgoingContext(ctx, "x-ydb-database", "/local")
	got, err := c.ListEndpoints(here, &Ydb_Discovery.ListEndpointsRequest{Database: "local/"})
	var result Ydb_Discovery.ListEndpointsResult
	outcome(t, got.GetOperation(), err, Ydb.StatusIds_SUCCESS, &result)
	if e := result.GetEndpoints(); len(e) != 4 || e[0].GetAddress() != "a.example" || e[1].GetPort() != 2137 ||
		e[0].GetSsl() || e[0].GetNodeId() == e[1].GetNodeId() || len(e[0].GetIpV4())+len(e[0].GetIpV6()) != 0 ||
		!slices.Equal(e[2].GetIpV6(), []string{"2001:db8::1"}) || !slices.Equal(e[3].GetIpV4(), []string{"192.0.2.1"}) {
		t.Fatal(e)
	}
	got, err = c.ListEndpoints(ctx, &Ydb_Discovery.ListEndpointsRequest{Database: "/other"})
	outcome(t, got.GetOperation(), err, Ydb.StatusIds_SCHEME_ERROR, nil)
	who, err := c.WhoAmI(ctx, &Ydb_Discovery.WhoAmIRequest{})
	var me Ydb_Discovery.WhoAmIResult
	outcome(t, who.GetOperation(), err, Ydb.StatusIds_SUCCESS, &me)
	if me.GetUser() == "" {
		t.Fatal("nobody")
	}

	// Everything else is refused with a sentence, and logged once.
	for range 2 {
		for what, call := range map[string]func(context.Context) error{
			"this is signalbox": func(ctx context.Context) error {
				_, err := Ydb_Table_V1.NewTableServiceClient(cc).CreateSession(ctx, &Ydb_Table.CreateSessionRequest{})
				return err
			},
			"DescribePath: this is": func(ctx context.Context) error {
				c := Ydb_Scheme_V1.NewSchemeServiceClient(cc)
				_, err := c.DescribePath(ctx, &Ydb_Scheme.DescribePathRequest{})
				return err
			},
		} {
			if err := call(ctx); grpcstatus.Code(err) != codes.Unimplemented || !strings.Contains(err.Error(), what) {
				t.Errorf("got %v, want %q", err, what)
			}
		}
	}
	if lines := log.lines("not implemented"); lines != 2 {
		t.Errorf("%d lines for 2 methods that are not implemented", lines)
	}
}
