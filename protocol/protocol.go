package protocol

import (
	"encoding/binary"

	"github.com/cespare/xxhash/v2"
)

// Version is the protocol version spoken by this package. A hello with another major version is
// refused with StatusUnsupported and the connection is closed.
//
// Version history
//
//	1  first version
const Version = 1

// Magic is the first field of a hello; a connection whose first frame does not carry it is closed.
const Magic = "signalbox"

// Limits of the specification, in bytes, milliseconds or units as named. A server may be configured
// to lower data limits; the hello's reply has those in force.
const (
	MaxNameLen        = 1024                // semaphore names: 1..1024 bytes, any bytes
	MaxPathLen        = 1024                // node paths
	MaxDescriptionLen = 1024                // session descriptions
	MaxDataLen        = 1 << 20             // semaphore data and acquire data
	KeyLen            = 16                  // session protection key and create id
	MaxSessionTimeout = 30 * 60 * 1000      // ms
	MaxAcquireTimeout = 24 * 60 * 60 * 1000 // ms; or exactly Forever
	Forever           = ^uint64(0)          // acquire timeout: wait without end; also the largest limit and count
	MaxFrameLen       = MaxDataLen + 64<<10 // a frame's length field, after the hello
	MaxHelloLen       = 12 << 10            // a frame's length field, before the hello was accepted
	MaxDepth          = 8                   // nesting of arrays in a frame
	DefaultBuckets    = 4096
)

// Self-check and grace periods of a coordination node, in ms.
const (
	MinSelfCheckPeriod     = 500
	MaxSelfCheckPeriod     = 10_000
	DefaultSelfCheckPeriod = 1_000
	MaxGracePeriod         = 30_000
	DefaultGracePeriod     = 10_000
	MinGraceOverSelfCheck  = 1_000
)

// Limits of a rollout's texts, in bytes, and of its lists.
const (
	MaxTrackPayload   = 64 << 10  // of a published version
	MaxTrackVersion   = 1<<63 - 1 // versions are from 1 to this
	MaxTrackLocations = 64        // of an order
	MaxTrackGates     = 8         // before a location
	MaxTrackCodes     = 32        // explicit codes
	MaxTrackName      = 128       // of a location, a gate or a code
	MaxTrackInstance  = 255       // of an instance's id
	MaxTrackMeta      = 1024      // of an instance's meta
	MaxTrackMessage   = 256       // of a reported message or a gate's text
	MaxTrackGateSpec  = 2048      // of a gate's command or address
	MaxTrackDuration  = 1 << 32   // ms
)

// Limits of a coordination process, in bytes, and of its lists.
const (
	MaxProcessName     = 128                 // parts of letters and digits, with single dashes or dots between them
	MaxProcessMembers  = 1_000               // and receivers of a message
	MaxProcessKey      = 128                 // of a member
	MaxProcessData     = 512                 // of a member
	MaxProcessResult   = 32 << 10            // of a round
	MaxProcessText     = 256                 // of a reason; a longer one is cut
	MaxProcessPayload  = 1 << 20             // of a message
	MaxProcessDuration = 24 * 60 * 60 * 1000 // ms
)

// Bucket is the slice of the key space that (node, name) belongs to: xxhash64 over the node id as 8
// big-endian bytes followed by the name's bytes, modulo the tier's number of buckets.
func Bucket(node uint64, name []byte, buckets uint32) uint32 {
	return uint32(hash(node, "", name) % uint64(buckets))
}

func hash(node uint64, space string, name []byte) uint64 {
	var d xxhash.Digest
	d.Reset()
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], node)
	_, _ = d.Write(b[:])
	_, _ = d.WriteString(space)
	_, _ = d.Write(name)
	return d.Sum64()
}

// ProcessBucket is the bucket of a coordination process: its names are a key space of their own, so
// that a semaphore and a process may share one. It is [Bucket] of the name with "process" and a
// zero byte in front.
func ProcessBucket(node uint64, name []byte, buckets uint32) uint32 {
	return uint32(hash(node, "process\x00", name) % uint64(buckets))
}

// HomeBucket is the bucket in which a session made with this create id lives.
func HomeBucket(createID [KeyLen]byte, buckets uint32) uint32 {
	return uint32(xxhash.Sum64(createID[:]) % uint64(buckets))
}

// SessionID is, from the lowest bit up: a counter (36 bits), the home bucket (16 bits), the tier (4
// bits). The counter starts at 1 and belongs to the bucket, so an id is never reused; 0 is no
// session. Ids of the first two tiers stay below 2^53, where every JSON reader keeps numbers exact.
type SessionID = uint64

const (
	counterBits = 36
	bucketBits  = 16
)

// MakeSessionID builds a session id. Counter is in 1..2^36-1, tier in 0..15.
func MakeSessionID(tier uint8, bucket uint16, counter uint64) SessionID {
	return uint64(tier&15)<<(counterBits+bucketBits) | uint64(bucket)<<counterBits | counter&(1<<counterBits-1)
}

// SessionBucket is the home bucket of a session id.
func SessionBucket(id SessionID) uint32 { return uint32(id >> counterBits & (1<<bucketBits - 1)) }

// SessionTier is the tier of a session id.
func SessionTier(id SessionID) uint8 { return uint8(id >> (counterBits + bucketBits) & 15) }
