package replica

import (
	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard"
)

// Origin says who waits for the outcome of a command. The zero Origin is nobody.
type Origin struct {
	Conn    uint64        // connection; ids are never reused in a process
	Request uint64        // request id on it
	Kind    protocol.Kind // of the request
	Tag     uint64        // the caller's own
}

// Sink takes what leaves a shard. It belongs to the server.
//
// Applied, LeaderChanged and Restored of one shard are called one after another, in the order of the log, each entry's before the next entry is
// applied; the machine does not change meanwhile, so [Shard.View] inside them shows exactly the state after the entry. Failed, Pong, Cut and Detach may
// come from other goroutines at the same time. No method may block, and none may call [Shard.Exclusive], [Host.Tick] or a Close; Submit,
// Barrier, Bound and the other feeds are allowed, they only queue.
type Sink interface {
	// Applied delivers one entry of the log. Origins has one element for each command of the batch if, and only if, this instance proposed the batch
	// and it was applied in its own epoch; it is nil otherwise. Events refer to commands by their index. Neither slice may be kept.
	Applied(s *Shard, index uint64, origins []Origin, ev *shard.Events)
	// Failed: none of these was applied, and none ever will be. Status is StatusUnavailable or StatusOverloaded. Origins may not be kept.
	Failed(s *Shard, origins []Origin, st protocol.Status)
	// LeaderChanged: leader is the replica id of the shard's leader as far as is known here, 0 for none. Leading says that this replica leads and its
	// own epoch is applied: requests are accepted. Leading ends as soon as it is in doubt.
	LeaderChanged(s *Shard, leader uint64, leading bool)
	// Pong: a read barrier that began after this ping was done. The connection's sessions at home here were alive.
	Pong(s *Shard, conn, ping uint64)
	// Cut asks for the connection to be closed: it was silent for too long, or the outcome of a request of its own can no longer be learned here.
	Cut(s *Shard, conn uint64, reason string)
	// Detach asks for the sessions of a connection that are at home here to be taken off it, and its client to be told, before any Pong that follows. The leadership
	// under which they were attached is over.
	Detach(s *Shard, conn uint64)
}

// Restorer is a [Sink] that wants to know when the machine was replaced by a snapshot while serving: changes between the last entry applied
// and the snapshot left no events. Streams over the shard start afresh.
type Restorer interface {
	Restored(s *Shard)
}

// MessageSender carries messages between the leaders of shards. It may lose, delay, duplicate and reorder them. Send never blocks; it may keep msg.
type MessageSender interface {
	Send(toShard, fromShard uint64, msg []byte)
}
