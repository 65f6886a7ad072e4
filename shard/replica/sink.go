package replica

import (
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard"
	"github.com/signalbox-dev/signalbox/shard/replica/leaderdriver"
	"github.com/signalbox-dev/signalbox/shard/replica/proposal"
)

// Origin identifies the request that waits for a command's outcome. The zero Origin: no request.
type Origin = proposal.Origin

// Sink receives the output of a shard. The server implements it.
//
// Applied, LeaderChanged and Restored of a shard are called one after another, in log order, before
// the next entry is applied. The machine does not change meanwhile: [Shard.View] inside them shows
// exactly the state after the entry. Failed, Pong, Cut and Detach may be called concurrently on
// other goroutines.
//
// No method may block, or call [Shard.Exclusive], [Host.Tick] or a Close. Submit, Barrier and other
// calls that only queue are allowed.
type Sink interface {
	// Applied delivers one entry of the log. If this instance proposed the batch and it was applied
	// in its own epoch, origins has one element for each command; otherwise it is nil. Events refer
	// to commands by index. Neither slice may be kept.
	Applied(s *Shard, index uint64, origins []Origin, ev *shard.Events)
	// Failed: none of these commands was applied, and none ever will be. Status is
	// StatusUnavailable or StatusOverloaded. Origins must not be kept.
	Failed(s *Shard, origins []Origin, st protocol.Status)
	// LeaderChanged: leader is the replica id of the shard's leader as known here, 0 for none.
	// Leading: this replica leads and its own epoch is applied, so requests are accepted. It ends
	// as soon as the leadership is in doubt.
	LeaderChanged(s *Shard, leader uint64, leading bool)
	// Pong: a read barrier that began after this ping has succeeded. The connection's sessions at
	// home here were alive.
	Pong(s *Shard, conn, ping uint64)
	// Cut asks to close the connection: it was silent for too long, or the outcome of one of its
	// requests is unknown here.
	Cut(s *Shard, conn uint64, reason string)
	// Detach asks to take the sessions at home here off the connection, and to notify its client
	// before any later Pong. The leadership under which they were attached is over.
	Detach(s *Shard, conn uint64)
}

// MemberMessage is a message from a member of a coordination process.
type MemberMessage = leaderdriver.MemberMessage

// MemberSink receives the messages of a shard's leader to members of coordination processes.
type MemberSink interface {
	leaderdriver.MemberSink
	// MembersTicked is called about every 100 ms while messages are relayed, and every second else,
	// while this replica leads.
	MembersTicked(*Shard)
}

// LimitSink receives the notifications of the leader of a shard's rate limits to sessions.
type LimitSink = leaderdriver.LimitSink

// Restorer is a [Sink] that is notified when a snapshot has replaced the machine: the changes
// before the snapshot left no events. Streams of the shard start again.
type Restorer interface {
	Restored(s *Shard)
}

// StaleSink is a [Sink] that is notified of each round of read-index that failed: of how old the
// machine may be by now, see [Shard.Age]. It is called on the barrier goroutine.
type StaleSink interface {
	Stale(s *Shard, age time.Duration)
}

// MessageSender carries messages between the leaders of shards. It may lose, delay, duplicate and
// reorder them. Send must not block, and may keep msg.
type MessageSender interface {
	Send(toShard, fromShard uint64, msg []byte)
}
