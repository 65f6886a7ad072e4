package peer

import (
	"testing"

	"github.com/lni/dragonboat/v4/config"
	"github.com/lni/dragonboat/v4/raftpb"
	"github.com/signalbox-dev/signalbox/server/servertest/await"
	"github.com/signalbox-dev/signalbox/server/servertest/memorynet"
)

// TestSharedConnReconnects: a sender that was idle while its connection broke has its next message
// sent over a new one; a peer that is not there costs the messages, and no error, which would have
// the engine send nothing to it for a while; and when it is there, messages come.
func TestSharedConnReconnects(t *testing.T) {
	t.Parallel()
	n := memorynet.New()
	a := startTransport(t, memoryConfig(n, "a:1"), nil)
	batches := make(chan raftpb.MessageBatch, 1000)
	startB := func() *Transport {
		b := startTransport(t, memoryConfig(n, "b:1"), nil)
		if err := b.RaftTransport().Create(config.NodeHostConfig{RaftAddress: "b:1"},
			func(x raftpb.MessageBatch) { batches <- x }, nil).Start(); err != nil {
			t.Fatal(err)
		}
		return b
	}
	out := a.RaftTransport().Create(config.NodeHostConfig{RaftAddress: "a:1"}, nil, nil)
	send := func(c interface {
		SendMessageBatch(raftpb.MessageBatch) error
	}) {
		t.Helper()
		if err := c.SendMessageBatch(testBatch("a:1")); err != nil {
			t.Fatalf("the engine was told: %v", err)
		}
	}
	idle, err := out.GetConnection(testContext(t), "b:1")
	if err != nil {
		t.Fatalf("a peer that is not there: %v", err)
	}
	defer idle.Close()
	busy, err := out.GetConnection(testContext(t), "b:1")
	if err != nil {
		t.Fatal(err)
	}
	defer busy.Close()
	send(idle)
	if s := a.Stats(); s.BatchesUnsent.Load() != 1 {
		t.Errorf("%d batches were not sent", s.BatchesUnsent.Load())
	}

	for range 3 {
		b := startB()
		await.True(t, "a batch to come", func() bool {
			send(busy)
			return len(batches) > 0
		})
		send(idle) // over the same connection
		if s := b.Stats(); s.Inbound.Load() != 1 {
			t.Errorf("%d connections", s.Inbound.Load())
		}
		_ = b.Close()
		await.True(t, "the connection to be lost", func() bool { return a.Stats().Outbound.Load() == 0 })
		for len(batches) > 0 {
			<-batches
		}
	}
	b := startB()
	await.True(t, "a batch of the one that was idle", func() bool {
		send(idle)
		return len(batches) > 0
	})
	if s := b.Stats(); s.Inbound.Load() != 1 {
		t.Errorf("%d connections", s.Inbound.Load())
	}
}
