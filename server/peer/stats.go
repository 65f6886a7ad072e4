package peer

import "sync/atomic"

// Stats are a transport's counters. The first three are gauges.
type Stats struct {
	Inbound     int64 // authenticated connections from others
	Outbound    int64 // connections to others
	Handshaking int64 // unauthenticated connections from others

	BytesSent, BytesReceived       uint64 // frames, snapshots included
	BatchesSent, BatchesReceived   uint64 // of raft messages
	BatchesDropped                 uint64 // received without a raft engine
	BatchesUnsent                  uint64 // dropped because the peer was unreachable
	ChunksSent, ChunksReceived     uint64 // of snapshots
	MessagesSent, MessagesReceived uint64 // one-way
	MessagesDropped                uint64 // for want of a connection, room or handler
	CallsSent, CallsReceived       uint64
	CallsRefused                   uint64 // received, and answered with OVERLOADED
	Dials, DialsFailed             uint64
	Accepted                       uint64 // connections from others, rejected ones included
	RefusedToken, RefusedCluster   uint64 // connections from others, by reason of rejection
	RefusedAddress, RefusedVersion uint64
	RefusedGarbage                 uint64 // not a handshake
	RefusedSlow                    uint64 // no handshake in time
	RefusedBusy                    uint64 // too many connections, or evicted by newer ones
	AcceptErrors                   uint64 // such as no descriptors left
	BadFrames                      uint64 // authenticated connections closed for a malformed frame
	Silent                         uint64 // connections closed after missed keep-alives
	Panics                         uint64 // recovered, of handlers
}

// counters are the values of Stats.
type counters struct {
	inbound, outbound, handshaking                                                             atomic.Int64
	bytesSent, bytesReceived, batchesSent, batchesReceived, batchesDropped, batchesUnsent      atomic.Uint64
	chunksSent, chunksReceived, messagesSent, messagesReceived, messagesDropped                atomic.Uint64
	callsSent, callsReceived, callsRefused, dials, dialsFailed, accepted                       atomic.Uint64
	refusedToken, refusedCluster, refusedAddress, refusedVersion                               atomic.Uint64
	refusedGarbage, refusedSlow, refusedBusy, acceptErrors, badFrames, silent, handlerPanicked atomic.Uint64
}

// Stats returns the counters, read one after the other.
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
