package protocol

import "encoding/binary"

// lengthSize is the size of the length in front of a frame.
const lengthSize = 4

// Header is a frame taken apart. Body is one msgpack array and aliases the frame.
type Header struct {
	Kind Kind
	ID   uint64 // request id, watch id, or 0
	Arg  uint64 // bucket of a request, status of a reply, shard of an event
	Body []byte
}

// AppendFrame appends a whole frame, its length first. A nil message is an empty body.
func AppendFrame(b []byte, kind Kind, id, arg uint64, m Message) []byte {
	start := len(b)
	b = beginFrame(b, kind, id, arg)
	if m == nil {
		b = append(b, fixArray)
	} else {
		b = AppendBody(b, m)
	}
	return endFrame(b, start)
}

// AppendFrameRaw appends a whole frame with a body that is encoded already.
func AppendFrameRaw(b []byte, kind Kind, id, arg uint64, body []byte) []byte {
	start := len(b)
	b = beginFrame(b, kind, id, arg)
	b = append(b, body...)
	return endFrame(b, start)
}

// beginFrame appends a frame up to its body, and endFrame ends the one that began at b[start].
func beginFrame(b []byte, kind Kind, id, arg uint64) []byte {
	b = append(b, 0, 0, 0, 0, fixArray|4)
	b = appendUint(b, uint64(kind))
	b = appendUint(b, id)
	return appendUint(b, arg)
}

func endFrame(b []byte, start int) []byte {
	binary.BigEndian.PutUint32(b[start:], uint32(len(b)-start-lengthSize))
	return b
}

// SplitFrame takes the first frame off buf: frame is its bytes without the length, aliasing buf,
// and n is the number of bytes taken, or 0 when the frame is not complete yet. A length of 0 or
// above max is an error as soon as the length is there, and the caller must close the connection:
// there is no way to find the next frame.
func SplitFrame(buf []byte, max uint32) (frame []byte, n int, err error) {
	if len(buf) < lengthSize {
		return nil, 0, nil
	}
	length := binary.BigEndian.Uint32(buf)
	if length == 0 {
		return nil, 0, Errorf(StatusBadRequest,
			"frame has length 0; a frame is a 4-byte big-endian length and that many bytes")
	}
	if length > max {
		return nil, 0, Errorf(StatusBadRequest, "frame has length %d; at most %d is allowed here", length, max)
	}
	if uint64(len(buf)-lengthSize) < uint64(length) {
		return nil, 0, nil
	}
	n = lengthSize + int(length)
	return buf[lengthSize:n:n], n, nil
}

// ParseFrame takes a frame, without its length, apart. It checks the structure of the whole frame
// first: lengths and counts against the bytes there are, depth against MaxDepth, nothing behind the
// end. What it returns can be decoded without surprises. The kind may be unknown. Errors are
// StatusBadRequest.
func ParseFrame(frame []byte) (Header, error) {
	c := cursor{rest: frame, left: 1, message: "frame"}
	if n := c.count("frame"); c.err == nil && n != 4 {
		return Header{}, Errorf(StatusBadRequest, "frame is an array of %d values; it has exactly 4: kind, id, arg, body",
			n)
	}
	c.left = 3
	kind := c.uint("kind")
	h := Header{ID: c.uint("id"), Arg: c.uint("arg")}
	if c.err == nil && kind > 0xffff {
		c.fail("kind", "an unsigned integer of 16 bits")
	}
	if c.err != nil {
		return Header{}, c.err
	}
	h.Kind, h.Body = Kind(kind), c.rest
	if err := checkBody(h.Body); err != nil {
		return Header{}, err
	}
	return h, nil
}
