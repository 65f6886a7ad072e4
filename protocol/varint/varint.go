// Package varint reads and writes the fields of records: unsigned varints, byte strings and flags.
//
//	b = varint.Append(b, id, epoch)
//	b = varint.AppendBytes(b, name)
//
//	r := varint.Reader{Rest: b}
//	id, epoch, name := r.Uint(), r.Uint(), r.Bytes(maxName)
//	if !r.Done() { ... } // damaged
//
// A number is a uvarint, a byte string has its length before it, a flag is one byte, 0 or 1.
//
// Records on disk and messages between instances are lists of such fields: the batches and
// snapshots of shard, the records of processes and rollouts, the log of shard/meta, the messages
// between the leaders of two shards, and the values of the SDK's configurations. The frames of the
// protocol are msgpack and do not use it.
//
// The package stands below protocol because shard and client both may import it.
package varint

import (
	"bytes"
	"encoding/binary"
	"math"
)

// NoLimit is for lengths that only the input bounds.
const NoLimit = math.MaxInt

// Append appends numbers.
func Append(b []byte, numbers ...uint64) []byte {
	for _, v := range numbers {
		b = binary.AppendUvarint(b, v)
	}
	return b
}

// AppendBytes appends a byte string with its length before it.
func AppendBytes[T ~string | ~[]byte](b []byte, v T) []byte {
	return append(binary.AppendUvarint(b, uint64(len(v))), v...)
}

// AppendBool appends flags.
func AppendBool(b []byte, flags ...bool) []byte {
	for _, v := range flags {
		n := byte(0)
		if v {
			n = 1
		}
		b = append(b, n)
	}
	return b
}

// Reader reads fields from the front of Rest. After the first field that is missing or too long,
// Failed is set, Rest is empty, and every further field is zero. So a decoder reads all fields and
// looks at Failed, or Done, once. A length never allocates more than the input holds.
type Reader struct {
	Rest   []byte
	Failed bool
}

// Done reports that every field was there and that nothing is left.
func (r *Reader) Done() bool { return !r.Failed && len(r.Rest) == 0 }

// Fail marks the input as damaged.
func (r *Reader) Fail() { r.Rest, r.Failed = nil, true }

// Uint reads a number.
func (r *Reader) Uint() uint64 {
	if len(r.Rest) > 0 && r.Rest[0] < 0x80 {
		v := r.Rest[0]
		r.Rest = r.Rest[1:]
		return uint64(v)
	}
	return r.longUint()
}

func (r *Reader) longUint() uint64 {
	v, n := binary.Uvarint(r.Rest)
	if n <= 0 {
		r.Fail()
		return 0
	}
	r.Rest = r.Rest[n:]
	return v
}

// Uints reads numbers.
func (r *Reader) Uints(numbers ...*uint64) {
	for _, v := range numbers {
		*v = r.Uint()
	}
}

// Uint32 reads a number of at most 32 bits.
func (r *Reader) Uint32() uint32 {
	v := r.Uint()
	if v > 1<<32-1 {
		r.Fail()
		return 0
	}
	return uint32(v)
}

// Byte reads one byte.
func (r *Reader) Byte() byte {
	if len(r.Rest) == 0 {
		r.Fail()
		return 0
	}
	v := r.Rest[0]
	r.Rest = r.Rest[1:]
	return v
}

// Bool reads a flag.
func (r *Reader) Bool() bool {
	v := r.Byte()
	if v > 1 {
		r.Fail()
	}
	return v == 1
}

// Bytes reads a byte string of at most limit bytes. It aliases the input.
func (r *Reader) Bytes(limit int) []byte {
	n := r.Count(limit)
	v := r.Rest[:n:n]
	r.Rest = r.Rest[n:]
	return v
}

// Copy is Bytes, copied; an empty string is nil.
func (r *Reader) Copy(limit int) []byte {
	if v := r.Bytes(limit); len(v) > 0 {
		return bytes.Clone(v)
	}
	return nil
}

// Fixed fills a field of fixed length, which has no length before it.
func (r *Reader) Fixed(field []byte) {
	if len(field) > len(r.Rest) {
		r.Fail()
		return
	}
	r.Rest = r.Rest[copy(field, r.Rest):]
}

// Count reads the length of a list, at most limit. Its elements take at least one byte each.
func (r *Reader) Count(limit int) int {
	n := r.Uint()
	if n > uint64(limit) || n > uint64(len(r.Rest)) {
		r.Fail()
		return 0
	}
	return int(n)
}
