// Package relay carries messages between the members of one coordination process, as a pure step
// machine of the shard's leader.
//
// Messages never enter the log. A [Relay] holds a request from its arrival until its receiver
// replied, its sender gave it up, or the round is over, so that a receiver that attaches again is
// notified again. A new leader starts with an empty relay; senders repeat unanswered requests. A
// request is named by (epoch, sender, number) and receiver; together with the memory of replies
// that receivers keep for the epoch, each is delivered at least once and executed successfully at
// most once by each receiver.
//
//	r := relay.New(relay.Limits{})
//	r.Round(p.Epoch(), relay.Open, sessions)  // after each Apply that changed the process
//	request := relay.Request{From: a, Epoch: 7, Number: 1, Low: 1, To: []uint64{b}, Payload: x}
//	err := r.Request(request, &out)
//	r.Attached(b, &out)                       // b has a new connection
//	err = r.Reply(relay.Reply{From: b, To: a, Epoch: 7, Number: 1, Payload: y}, &out)
//
// Nothing in here reads a clock, does I/O or starts a goroutine; its maps are for finding, and are
// never walked. Payloads are kept, and never written to.
package relay
