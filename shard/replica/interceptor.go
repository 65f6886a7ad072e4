package replica

import (
	"context"
	"errors"
	"time"

	"github.com/lni/dragonboat/v4/config"
	"github.com/lni/dragonboat/v4/raftio"
	"github.com/lni/dragonboat/v4/raftpb"

	"github.com/signalbox-dev/signalbox/shard/replica/engine"
)

// interceptor receives the transport's messages before the engine does.
type interceptor struct {
	next       config.TransportFactory
	campaigner *campaigner
	answered   func(shard, index uint64, rejected bool) // of the log store
	handler    raftio.MessageHandler                    // set once, before the engine starts a group
}

func (r *interceptor) Create(
	c config.NodeHostConfig, messages raftio.MessageHandler, chunks raftio.ChunkHandler,
) raftio.ITransport {
	r.handler = messages
	return r.next.Create(c, r.receive, chunks)
}

func (r *interceptor) Validate(address string) bool { return r.next.Validate(address) }

func (r *interceptor) receive(b raftpb.MessageBatch) {
	for i := range b.Requests {
		switch m := &b.Requests[i]; m.Type {
		case raftpb.TimeoutNow:
			// The engine may reuse the batch, so copy the fields first.
			defer r.campaigner.add(campaign{campaignKey: campaignKey{shard: m.ShardID, from: m.From,
				to: m.To, term: m.Term}, next: time.Now().Add(repeatDelays[0])})
		case raftpb.ReplicateResp:
			r.answered(m.ShardID, m.LogIndex, m.Reject)
		}
	}
	b.Requests = engine.NewestHeartbeats(b.Requests)
	r.handler(b)
}

// alone is the transport of a host that reaches no other one.
type alone struct{}

var errNoHost = errors.New("no host with this address is reachable")

func (alone) Create(config.NodeHostConfig, raftio.MessageHandler, raftio.ChunkHandler) raftio.ITransport {
	return alone{}
}

func (alone) Validate(address string) bool { return address != "" }
func (alone) Name() string                 { return "alone" }
func (alone) Start() error                 { return nil }
func (alone) Close() error                 { return nil }

func (alone) GetConnection(context.Context, string) (raftio.IConnection, error) {
	return nil, errNoHost
}

func (alone) GetSnapshotConnection(context.Context, string) (raftio.ISnapshotConnection, error) {
	return nil, errNoHost
}
