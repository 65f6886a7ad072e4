package peer

import "sync/atomic"

// Stats are a transport's counters. The first three are gauges.
type Stats struct {
	Inbound     atomic.Int64 // authenticated connections from others
	Outbound    atomic.Int64 // connections to others
	Handshaking atomic.Int64 // unauthenticated connections from others

	BytesSent, BytesReceived       atomic.Uint64 // frames, snapshots included
	BatchesSent, BatchesReceived   atomic.Uint64 // of raft messages
	BatchesDropped                 atomic.Uint64 // received without a raft engine
	BatchesUnsent                  atomic.Uint64 // dropped because the peer was unreachable
	ChunksSent, ChunksReceived     atomic.Uint64 // of snapshots
	MessagesSent, MessagesReceived atomic.Uint64 // one-way
	MessagesDropped                atomic.Uint64 // for want of a connection, room or handler
	CallsSent, CallsReceived       atomic.Uint64
	CallsRefused                   atomic.Uint64 // received, and answered with OVERLOADED
	Dials, DialsFailed             atomic.Uint64
	Accepted                       atomic.Uint64 // connections from others, rejected ones included
	RefusedToken, RefusedCluster   atomic.Uint64 // connections from others, by reason of rejection
	RefusedAddress, RefusedVersion atomic.Uint64
	RefusedGarbage                 atomic.Uint64 // not a handshake
	RefusedSlow                    atomic.Uint64 // no handshake in time
	RefusedBusy                    atomic.Uint64 // too many connections, or evicted by newer ones
	AcceptErrors                   atomic.Uint64 // such as no descriptors left
	BadFrames                      atomic.Uint64 // authenticated connections closed for a malformed frame
	Silent                         atomic.Uint64 // connections closed after missed keep-alives
	Panics                         atomic.Uint64 // recovered, of handlers
}
