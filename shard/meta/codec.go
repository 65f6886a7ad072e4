package meta

import (
	"encoding/binary"

	"github.com/signalbox-dev/signalbox/protocol"
)

// FormatVersion is the version of commands, results and snapshots that this binary writes. Apply
// reads exactly the fields of an entry's own version.
//
// Version history
//
//	1  first version
const FormatVersion = 1

// The codec: unsigned varints, byte strings after a varint length, lists after a varint count. No
// field is optional within a version.

func appendUint(b []byte, v uint64) []byte { return binary.AppendUvarint(b, v) }

func appendText[T string | []byte](b []byte, s T) []byte {
	b = binary.AppendUvarint(b, uint64(len(s)))
	return append(b, s...)
}

func appendBool(b []byte, v bool) []byte {
	if v {
		return append(b, 1)
	}
	return append(b, 0)
}

// reader reads fields from the front of b. After the first field that is missing or too long, bad
// is set and every further field is zero: a decoder reads all its fields and checks bad once. It
// allocates nothing for a length or count that the remaining bytes could not fill.
type reader struct {
	b   []byte
	bad bool
}

func (r *reader) fail() {
	r.bad = true
	r.b = nil
}

// done says that every field was there and no bytes are left.
func (r *reader) done() bool { return !r.bad && len(r.b) == 0 }

func (r *reader) uint() uint64 {
	v, n := binary.Uvarint(r.b)
	if n <= 0 {
		r.fail()
		return 0
	}
	r.b = r.b[n:]
	return v
}

func (r *reader) uint32() uint32 {
	v := r.uint()
	if v > 1<<32-1 {
		r.fail()
		return 0
	}
	return uint32(v)
}

func (r *reader) byte() byte {
	if len(r.b) == 0 {
		r.fail()
		return 0
	}
	v := r.b[0]
	r.b = r.b[1:]
	return v
}

func (r *reader) bool() bool {
	v := r.byte()
	if v > 1 {
		r.fail()
	}
	return v == 1
}

// text copies: the state must not alias an entry.
func (r *reader) text(most int) string {
	n := r.uint()
	if n > uint64(most) || n > uint64(len(r.b)) {
		r.fail()
		return ""
	}
	s := string(r.b[:n])
	r.b = r.b[n:]
	return s
}

// into reads a field of fixed length.
func (r *reader) into(field []byte) {
	if len(field) > len(r.b) {
		r.fail()
		return
	}
	r.b = r.b[copy(field, r.b):]
}

// count reads the count of a list whose elements have at least one byte each.
func (r *reader) count(most int) int {
	n := r.uint()
	if n > uint64(most) || n > uint64(len(r.b)) {
		r.fail()
		return 0
	}
	return int(n)
}

func appendConfig(b []byte, c *protocol.NodeConfig) []byte {
	b = appendUint(b, uint64(c.Fields))
	b = appendUint(b, c.SelfCheckPeriod)
	b = appendUint(b, c.GracePeriod)
	b = append(b, byte(c.ReadConsistency), byte(c.AttachConsistency), byte(c.CountersMode))
	b = appendUint(b, c.MaxSessions)
	b = appendUint(b, c.MaxSemaphores)
	b = appendUint(b, c.MaxBytes)
	b = appendUint(b, c.MaxWaiters)
	b = appendUint(b, c.MaxWatchers)
	return appendUint(b, c.MaxRequests)
}

func (r *reader) config() protocol.NodeConfig {
	return protocol.NodeConfig{
		Fields:            r.uint32(),
		SelfCheckPeriod:   r.uint(),
		GracePeriod:       r.uint(),
		ReadConsistency:   protocol.Consistency(r.byte()),
		AttachConsistency: protocol.Consistency(r.byte()),
		CountersMode:      protocol.CountersMode(r.byte()),
		MaxSessions:       r.uint(),
		MaxSemaphores:     r.uint(),
		MaxBytes:          r.uint(),
		MaxWaiters:        r.uint(),
		MaxWatchers:       r.uint(),
		MaxRequests:       r.uint(),
	}
}
