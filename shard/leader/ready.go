package leader

import "github.com/signalbox-dev/signalbox/shard"

// Command is a command to propose. Its outcome is reported by [Leader.Done] with the ID.
type Command struct {
	shard.Command
	ID uint64
}

// Pong answers a ping. The driver sends it on the connection with the shard's id.
type Pong struct{ Conn, Ping uint64 }

// Message is a message to the leader of another shard, or of the same one. It may be lost.
type Message struct {
	To    uint64
	Bytes []byte
}

// Cut takes a connection away from this shard. No pong of this shard may be sent on it any more,
// unless Reason is empty and the client was notified that its sessions are detached.
type Cut struct {
	Conn   uint64
	Reason string // why to close the connection; empty: keep it open without its sessions at home here
}

// Ready is the work that the leader wants done, in this order: cuts first.
type Ready struct {
	Cut      []Cut
	Pongs    []Pong
	Commands []Command
	Messages []Message
	Barrier  uint64 // number of the barrier to begin; 0: none
	Tick     bool   // propose a batch, even an empty one, to log the time
	Compare  bool   // call Holdings
}

func (r *Ready) reset() {
	clear(r.Cut)
	clear(r.Pongs)
	clear(r.Commands)
	clear(r.Messages)
	*r = Ready{Cut: r.Cut[:0], Pongs: r.Pongs[:0], Commands: r.Commands[:0], Messages: r.Messages[:0]}
}
