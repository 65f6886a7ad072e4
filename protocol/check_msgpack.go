package protocol

import "encoding/binary"

// errTruncated and its siblings are made once: refusing bytes must cost nothing.
var (
	errTruncated = &Error{Status: StatusBadRequest,
		Message: "msgpack value is cut short; its lengths must fit in the frame"}
	errTooDeep = &Error{Status: StatusBadRequest,
		Message: "msgpack value is nested too deep; at most 8 levels are allowed"}
	errReserved = &Error{Status: StatusBadRequest, Message: "msgpack value starts with the reserved byte 0xc1"}
	errTrailing = &Error{Status: StatusBadRequest,
		Message: "bytes follow the msgpack value; a frame or body holds exactly one"}
	errNotArray = &Error{Status: StatusBadRequest, Message: "body is not a msgpack array"}
)

// CheckBody checks the structure of a body alone: one msgpack array, all lengths and counts within
// the bytes there are, no deeper than a frame allows, nothing behind it. It costs time in
// proportion to len(body) at most and allocates nothing.
func CheckBody(body []byte) error {
	if err := checkBody(body); err != nil {
		return err
	}
	return nil
}

func checkBody(body []byte) *Error {
	if len(body) == 0 {
		return errTruncated
	}
	if c := body[0]; c&0xf0 != fixArray && c != array16 && c != array32 {
		return errNotArray
	}
	n, err := valueLen(body, MaxDepth-1) // the frame's own array is the first level
	if err != nil {
		return err
	}
	if n != len(body) {
		return errTrailing
	}
	return nil
}

// valueLen returns the length of the first msgpack value of b, of any type, walking it without
// recursion. Arrays and maps may nest depth levels, at most MaxDepth. Every step consumes a byte,
// and a length or count that the bytes cannot hold ends the walk, so announced lengths cost
// nothing.
func valueLen(b []byte, depth int) (int, *Error) {
	var outer [MaxDepth]uint64 // values still to come around the array or map that is being walked
	level, pos := 0, 0
	left := uint64(1) // values still to come in it
	for {
		for left == 0 {
			if level == 0 {
				if pos > len(b) {
					return 0, errTruncated
				}
				return pos, nil
			}
			level--
			left = outer[level]
		}
		if pos >= len(b) {
			return 0, errTruncated
		}
		s := &shapes[b[pos]]
		left--
		pos++
		if s.class == plain {
			pos += int(s.size) // may end up behind len(b), which the checks above see
			continue
		}
		n := uint64(s.count)
		if s.width > 0 {
			start := pos
			pos += int(s.width)
			if pos > len(b) {
				return 0, errTruncated
			}
			n = bigEndian(b[start:pos])
		}
		switch s.class {
		case sized:
			n += uint64(s.size)
			if n > uint64(len(b)-pos) {
				return 0, errTruncated
			}
			pos += int(n)
			continue
		case reserved:
			return 0, errReserved
		case mapped:
			n *= 2
		}
		if n > uint64(len(b)-pos) {
			return 0, errTruncated
		}
		if level >= depth {
			return 0, errTooDeep
		}
		outer[level] = left
		level++
		left = n
	}
}

// bigEndian reads an unsigned integer of 1, 2, 4 or 8 bytes.
func bigEndian(b []byte) uint64 {
	switch len(b) {
	case 1:
		return uint64(b[0])
	case 2:
		return uint64(binary.BigEndian.Uint16(b))
	case 4:
		return uint64(binary.BigEndian.Uint32(b))
	default:
		return binary.BigEndian.Uint64(b)
	}
}

// valueClass is the form of a value, by its first byte.
type valueClass uint8

const (
	plain    valueClass = iota // size more bytes
	sized                      // a length of width bytes, size more bytes (an ext's type), and as many as the length says
	listed                     // values: count of them, or a count of width bytes
	mapped                     // pairs of values: the same
	reserved                   // nothing: never used by msgpack
)

// shape describes the rest of a value after its first byte.
type shape struct {
	class              valueClass
	size, width, count uint8
}

// shapes has the shape of every first byte.
var shapes = makeShapes()

func makeShapes() (t [256]shape) {
	for i := range 16 {
		t[fixMap+i] = shape{class: mapped, count: uint8(i)}
		t[fixArray+i] = shape{class: listed, count: uint8(i)}
	}
	for i := range 32 {
		t[fixStr+i] = shape{size: uint8(i)}
	}
	for i := range 3 {
		width := uint8(1) << i
		t[bin8+i] = shape{class: sized, width: width}
		t[str8+i] = shape{class: sized, width: width}
		t[ext8+i] = shape{class: sized, width: width, size: 1}
	}
	for i := range 2 {
		width := uint8(2) << i
		t[array16+i] = shape{class: listed, width: width}
		t[map16+i] = shape{class: mapped, width: width}
		t[float32Byte+i] = shape{size: 4 << i}
	}
	for i := range 4 {
		t[uint8Byte+i] = shape{size: 1 << i}
		t[int8Byte+i] = shape{size: 1 << i}
	}
	for i := range 5 {
		t[fixExt1+i] = shape{size: 1 + 1<<i}
	}
	t[0xc1] = shape{class: reserved}
	return t
}
