package peer

import "sync/atomic"

// Stats is a mesh's counters. All but the first three only grow.
type Stats struct {
	Inbound     int64 // authenticated connections that others made
	Outbound    int64 // connections to others
	Handshaking int64 // connections of others that are not authenticated yet

	BytesSent, BytesReceived       uint64 // frames, snapshots included
	BatchesSent, BatchesReceived   uint64 // of raft messages
	BatchesDropped                 uint64 // received while no raft engine was there
	BatchesUnsent                  uint64 // dropped because the peer was not reached
	ChunksSent, ChunksReceived     uint64 // of snapshots
	MessagesSent, MessagesReceived uint64 // one-way
	MessagesDropped                uint64 // not sent, or received and not handled, for want of a connection, room or handler
	CallsSent, CallsReceived       uint64
	CallsRefused                   uint64 // received, and answered OVERLOADED
	Dials, DialsFailed             uint64
	Accepted                       uint64 // connections that others made, refused ones included
	RefusedToken, RefusedCluster   uint64 // connections of others, by why they were refused
	RefusedAddress, RefusedVersion uint64
	RefusedGarbage                 uint64 // no handshake, but something else
	RefusedSlow                    uint64 // no handshake in time
	RefusedBusy                    uint64 // too many connections, or pushed out by newer ones
	AcceptErrors                   uint64 // such as: no descriptors left
	BadFrames                      uint64 // authenticated connections closed because of what they carried
	Silent                         uint64 // connections closed because nothing was heard
	Panics                         uint64 // of handlers; they are recovered
}

// counters is Stats, to count with.
type counters struct {
	inbound, outbound, handshaking                                                             atomic.Int64
	bytesSent, bytesReceived, batchesSent, batchesReceived, batchesDropped, batchesUnsent      atomic.Uint64
	chunksSent, chunksReceived, messagesSent, messagesReceived, messagesDropped                atomic.Uint64
	callsSent, callsReceived, callsRefused, dials, dialsFailed, accepted                       atomic.Uint64
	refusedToken, refusedCluster, refusedAddress, refusedVersion                               atomic.Uint64
	refusedGarbage, refusedSlow, refusedBusy, acceptErrors, badFrames, silent, handlerPanicked atomic.Uint64
}

// Stats reads the counters, one after the other.
func (m *Transport) Stats() Stats {
	c := &m.counters
	return Stats{
		Inbound: c.inbound.Load(), Outbound: c.outbound.Load(), Handshaking: c.handshaking.Load(),
		BytesSent: c.bytesSent.Load(), BytesReceived: c.bytesReceived.Load(),
		BatchesSent: c.batchesSent.Load(), BatchesReceived: c.batchesReceived.Load(), BatchesDropped: c.batchesDropped.Load(), BatchesUnsent: c.batchesUnsent.Load(),
		ChunksSent: c.chunksSent.Load(), ChunksReceived: c.chunksReceived.Load(),
		MessagesSent: c.messagesSent.Load(), MessagesReceived: c.messagesReceived.Load(), MessagesDropped: c.messagesDropped.Load(),
		CallsSent: c.callsSent.Load(), CallsReceived: c.callsReceived.Load(), CallsRefused: c.callsRefused.Load(),
		Dials: c.dials.Load(), DialsFailed: c.dialsFailed.Load(), Accepted: c.accepted.Load(),
		RefusedToken: c.refusedToken.Load(), RefusedCluster: c.refusedCluster.Load(), RefusedAddress: c.refusedAddress.Load(),
		RefusedVersion: c.refusedVersion.Load(), RefusedGarbage: c.refusedGarbage.Load(), RefusedSlow: c.refusedSlow.Load(),
		RefusedBusy: c.refusedBusy.Load(), AcceptErrors: c.acceptErrors.Load(), BadFrames: c.badFrames.Load(), Silent: c.silent.Load(),
		Panics: c.handlerPanicked.Load(),
	}
}
