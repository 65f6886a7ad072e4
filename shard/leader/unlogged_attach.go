package leader

import (
	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard"
)

// MayAttachUnlogged reports whether an attach of a session may be answered before the log has it (a
// RELAXED attach). The key is compared by the caller, and the node's config asked.
//
// The answer lets the client believe in the session for less than its timeout from the moment it
// sent the request. So it is given only when the session cannot end earlier under any leader, and
// whatever becomes of the attach itself:
//
//   - The session is detached, and its deadline in the log is at least its timeout away, and the
//     age of the last barrier more. A leader that takes over keeps the deadline (shard.Machine),
//     and goes on from a log time that this leader has stamped. It took over after that barrier
//     began, which may be earlier than now by the age. Furthest is a log time that this leader
//     cannot have passed. The state must be at or after that barrier: age is looked up before the
//     view.
//   - No attach was sent between the one that the log has and this one: clients number each
//     attempt. Another leader, which this one does not know of yet, may otherwise have attached the
//     session and detached it again, and such a detach waits for the timeout alone. A client leaves
//     a number out behind a start or an attach that it sent more than once, since another leader
//     may have had the copy.
//   - It is the same client as before, by its nonce. Two clients do not know of each other's
//     numbers, so the log decides between them.
//   - Timeout and description stay what they are: nothing the client counts on is only in memory.
//
// After an unplanned change of leader that holds for about a grace period, in which all sessions
// come back together. After a planned one it does not hold: those attaches take the way through the
// log.
func MayAttachUnlogged(v *shard.SessionView, m *protocol.SessionAttach, furthest, age uint64) bool {
	return !v.Attached && v.Node == m.Node && m.Epoch == v.Epoch+1 && m.Nonce == v.Nonce &&
		m.Timeout == v.Timeout && m.Description == v.Description &&
		v.Deadline >= furthest+age+v.Timeout
}
