// Package meta is the pure state machine of the meta shard, which owns the cluster map: instances,
// tiers and their buckets, shards, coordination nodes, ticket keys and rights.
//
// Apply feeds a machine the entries of its log. Methods of State, which the machine embeds, read
// it. Copying m.State is a snapshot: an immutable value. The package has no clock, randomness, I/O
// or goroutines: what must be random or timed is in the command. DESIGN.md has the flow.
package meta

import "github.com/signalbox-dev/signalbox/protocol"

// Machine is the state after some prefix of the log. Apply must not run beside other uses of the
// machine; a copy of State has no such limit.
type Machine struct {
	State
}

// New is the machine before the first entry.
func New() *Machine { return &Machine{} }

// Apply applies the entry with this log index and returns the bytes of its Result. Entries come in
// the order of the log, once each. Bytes that are not a command change nothing and are answered
// with BAD_REQUEST. The entry is not kept.
func (m *Machine) Apply(index uint64, entry []byte) []byte {
	m.applied = index
	res := m.apply(entry)
	return AppendResult(nil, res)
}

func (m *Machine) apply(entry []byte) Result {
	op, c := decodeCommand(entry)
	if c == nil {
		return Result{Status: protocol.StatusBadRequest, Message: "the entry is not a command of a known format",
			Revision: m.revision}
	}
	if res, ok := m.opResult(op); ok {
		return res
	}
	next := m.State
	next.revision++
	res := c.apply(&next)
	if res.Status != protocol.StatusOK || res.Revision == unchanged {
		next = m.State
	}
	res.Revision = next.revision
	// Refusals are remembered too: an older copy of the entry that comes later must get the same
	// answer.
	next.rememberOp(op, res)
	m.State = next
	return res
}

// unchanged, as a result's revision, says that an OK command changed nothing: the revision stays.
const unchanged = ^uint64(0)
