package replica

import (
	"context"
	"errors"

	"github.com/lni/dragonboat/v4/config"
	"github.com/lni/dragonboat/v4/raftio"
)

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
