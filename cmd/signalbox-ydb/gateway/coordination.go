package gateway

import (
	"context"
	"time"

	"github.com/ydb-platform/ydb-go-genproto/Ydb_Coordination_V1"
	"github.com/ydb-platform/ydb-go-genproto/protos/Ydb_Coordination"
	"github.com/ydb-platform/ydb-go-genproto/protos/Ydb_Scheme"
	"google.golang.org/protobuf/proto"

	"github.com/signalbox-dev/signalbox/client"
)

// coordination is YDB's coordination service. Session is in stream.go.
type coordination struct {
	Ydb_Coordination_V1.UnimplementedCoordinationServiceServer
	g *Gateway
}

// graceMargin is how much longer than the self-check period the cluster wants the grace period.
// YDB wants it at least as long, and its examples have 1 s for both.
const graceMargin = time.Second

// CreateNode makes a node with its parents. A node that exists is left as it is, as in YDB.
func (c *coordination) CreateNode(
	ctx context.Context, req *Ydb_Coordination.CreateNodeRequest,
) (*Ydb_Coordination.CreateNodeResponse, error) {
	op, err := c.g.callAt(ctx, req.GetPath(), func(ctx context.Context, cl *client.Client, path string) (proto.Message, error) {
		_, err := cl.EnsureNode(ctx, path, nodeConfig(req.GetConfig(), defaultSelfCheck, defaultGrace))
		return nil, err
	})
	return &Ydb_Coordination.CreateNodeResponse{Operation: op}, err
}

// AlterNode replaces the settings that are given.
func (c *coordination) AlterNode(
	ctx context.Context, req *Ydb_Coordination.AlterNodeRequest,
) (*Ydb_Coordination.AlterNodeResponse, error) {
	op, err := c.g.callAt(ctx, req.GetPath(), func(ctx context.Context, cl *client.Client, path string) (proto.Message, error) {
		now, err := cl.DescribeNode(ctx, path)
		if err != nil {
			return nil, err
		}
		_, err = cl.AlterNode(ctx, path, nodeConfig(req.GetConfig(), *now.Config.SelfCheckPeriod, *now.Config.GracePeriod))
		return nil, err
	})
	return &Ydb_Coordination.AlterNodeResponse{Operation: op}, err
}

// DropNode drops a node with its sessions and semaphores.
func (c *coordination) DropNode(
	ctx context.Context, req *Ydb_Coordination.DropNodeRequest,
) (*Ydb_Coordination.DropNodeResponse, error) {
	op, err := c.g.callAt(ctx, req.GetPath(), func(ctx context.Context, cl *client.Client, path string) (proto.Message, error) {
		return nil, cl.DropNode(ctx, path)
	})
	return &Ydb_Coordination.DropNodeResponse{Operation: op}, err
}

// DescribeNode gives the settings in force, and the names of the semaphores if they are asked for.
func (c *coordination) DescribeNode(
	ctx context.Context, req *Ydb_Coordination.DescribeNodeRequest,
) (*Ydb_Coordination.DescribeNodeResponse, error) {
	op, err := c.g.callAt(ctx, req.GetPath(), func(ctx context.Context, cl *client.Client, path string) (proto.Message, error) {
		info, err := cl.DescribeNode(ctx, path)
		if err != nil {
			return nil, err
		}
		result := &Ydb_Coordination.DescribeNodeResult{
			Self:   &Ydb_Scheme.Entry{Name: lastSegment(info.Path), Type: Ydb_Scheme.Entry_COORDINATION_NODE},
			Config: describeConfig(c.g.clientPath(info.Path), &info.Config),
		}
		if wantsSemaphoreNames(req) {
			end, err := c.g.listings.begin(ctx)
			if err != nil {
				return nil, err
			}
			defer end()
			n, err := cl.Node(ctx, path)
			if err != nil {
				return nil, err
			}
			names, err := semaphoreNames(n.List(ctx, "", client.ReadConsistency(client.Strict)))
			if err != nil {
				return nil, err
			}
			appendSemaphoreNames(result, names)
		}
		return result, nil
	})
	return &Ydb_Coordination.DescribeNodeResponse{Operation: op}, err
}

// Settings of a new node that are not given.
const (
	defaultSelfCheck = time.Second
	defaultGrace     = 10 * time.Second
)

// nodeConfig is a configuration in the cluster's form: what is not given is left as it is.
// selfCheck and grace are in force. A grace period that the cluster would refuse as too short is
// made longer.
func nodeConfig(w *Ydb_Coordination.Config, selfCheck, grace time.Duration) (c client.NodeConfig) {
	if n := w.GetSelfCheckPeriodMillis(); n != 0 {
		selfCheck = time.Duration(n) * time.Millisecond
		c.SelfCheckPeriod = &selfCheck
	}
	if n := w.GetSessionGracePeriodMillis(); n != 0 {
		grace = time.Duration(n) * time.Millisecond
		c.GracePeriod = &grace
	}
	if least := selfCheck + graceMargin; grace < least {
		grace = least
		c.GracePeriod = &grace
	}
	if m := w.GetReadConsistencyMode(); m != 0 {
		c.ReadConsistency = consistencyOf(m)
	}
	if m := w.GetAttachConsistencyMode(); m != 0 {
		c.AttachConsistency = consistencyOf(m)
	}
	switch w.GetRateLimiterCountersMode() {
	case Ydb_Coordination.RateLimiterCountersMode_RATE_LIMITER_COUNTERS_MODE_AGGREGATED:
		c.CountersMode = new(client.CountersAggregated)
	case Ydb_Coordination.RateLimiterCountersMode_RATE_LIMITER_COUNTERS_MODE_DETAILED:
		c.CountersMode = new(client.CountersDetailed)
	}
	return c
}

func consistencyOf(m Ydb_Coordination.ConsistencyMode) *client.Consistency {
	if m == Ydb_Coordination.ConsistencyMode_CONSISTENCY_MODE_RELAXED {
		return new(client.Relaxed)
	}
	return new(client.Strict)
}

// describeConfig is a complete configuration in YDB's form.
func describeConfig(path string, c *client.NodeConfig) *Ydb_Coordination.Config {
	mode := func(x *client.Consistency) Ydb_Coordination.ConsistencyMode {
		if *x == client.Relaxed {
			return Ydb_Coordination.ConsistencyMode_CONSISTENCY_MODE_RELAXED
		}
		return Ydb_Coordination.ConsistencyMode_CONSISTENCY_MODE_STRICT
	}
	counters := Ydb_Coordination.RateLimiterCountersMode_RATE_LIMITER_COUNTERS_MODE_AGGREGATED
	if *c.CountersMode == client.CountersDetailed {
		counters = Ydb_Coordination.RateLimiterCountersMode_RATE_LIMITER_COUNTERS_MODE_DETAILED
	}
	return &Ydb_Coordination.Config{
		Path:                     path,
		SelfCheckPeriodMillis:    uint32(c.SelfCheckPeriod.Milliseconds()),
		SessionGracePeriodMillis: uint32(c.GracePeriod.Milliseconds()),
		ReadConsistencyMode:      mode(c.ReadConsistency),
		AttachConsistencyMode:    mode(c.AttachConsistency),
		RateLimiterCountersMode:  counters,
	}
}
