package protocol

import "encoding/binary"

// cursor reads the fields of one body in order. It never reads outside its bytes, checked before or
// not, and remembers the first error: from then on every field reads as zero, so a decoder asks
// only once, at its end.
//
// Invariant: left is the number of values still to come in the array being read; a field asked for
// when left is 0 is one that the writer did not know, and reads as zero.
type cursor struct {
	rest    []byte
	left    int
	message string // for errors
	err     *Error
}

// openBody starts reading the body of a message.
func openBody(body []byte, message string) cursor {
	c := cursor{rest: body, left: 1, message: message}
	c.left = c.count("body")
	return c
}

// end is the outcome of a decoder.
func (c *cursor) end() error {
	if c.err != nil {
		return c.err
	}
	return nil
}

// fail remembers the first error and makes everything that follows read as zero.
func (c *cursor) fail(field, want string) {
	if c.err == nil {
		c.err = Errorf(StatusBadRequest, "%s: field %s is not %s", c.message, field, want)
	}
	c.rest, c.left = nil, 0
}

// more reports whether the array being read has another value, and takes it off the count.
func (c *cursor) more() bool {
	if c.left <= 0 {
		return false
	}
	c.left--
	return true
}

// uint reads an unsigned integer of any msgpack width; signed forms are accepted while they are not
// negative.
func (c *cursor) uint(field string) uint64 {
	if !c.more() {
		return 0
	}
	if len(c.rest) > 0 && c.rest[0] < fixMap {
		v := uint64(c.rest[0])
		c.rest = c.rest[1:]
		return v
	}
	return c.wideUint(field)
}

func (c *cursor) wideUint(field string) uint64 {
	b := c.rest
	var v uint64
	n := 0
	if len(b) > 0 {
		switch b[0] {
		case uint8Byte, int8Byte:
			n = 2
		case uint16Byte, int16Byte:
			n = 3
		case uint32Byte, int32Byte:
			n = 5
		case uint64Byte, int64Byte:
			n = 9
		}
	}
	if n == 0 || len(b) < n {
		c.fail(field, "an unsigned integer")
		return 0
	}
	v = bigEndian(b[1:n])
	if b[0] >= int8Byte && v>>(8*(n-1)-1) != 0 {
		c.fail(field, "an unsigned integer: it is negative")
		return 0
	}
	c.rest = b[n:]
	return v
}

func (c *cursor) uint8(field string) uint8 {
	v := c.uint(field)
	if v > 0xff {
		c.fail(field, "an unsigned integer of 8 bits")
		return 0
	}
	return uint8(v)
}

func (c *cursor) uint32(field string) uint32 {
	v := c.uint(field)
	if v > 0xffffffff {
		c.fail(field, "an unsigned integer of 32 bits")
		return 0
	}
	return uint32(v)
}

func (c *cursor) bool(field string) bool {
	if !c.more() {
		return false
	}
	if len(c.rest) > 0 && (c.rest[0] == trueByte || c.rest[0] == falseByte) {
		v := c.rest[0] == trueByte
		c.rest = c.rest[1:]
		return v
	}
	c.fail(field, "a boolean")
	return false
}

// bytes reads bin or str; nil and empty are both nil. The result aliases the body.
func (c *cursor) bytes(field string) []byte {
	if !c.more() {
		return nil
	}
	b := c.rest
	if len(b) == 0 {
		c.fail(field, "bytes")
		return nil
	}
	head, n := 0, uint64(0)
	switch t := b[0]; {
	case t&0xe0 == fixStr:
		head, n = 1, uint64(t&0x1f)
	case t == bin8 || t == str8:
		if len(b) >= 2 {
			head, n = 2, uint64(b[1])
		}
	case t == bin16 || t == str16:
		if len(b) >= 3 {
			head, n = 3, uint64(binary.BigEndian.Uint16(b[1:]))
		}
	case t == bin32 || t == str32:
		if len(b) >= 5 {
			head, n = 5, uint64(binary.BigEndian.Uint32(b[1:]))
		}
	case t == nilByte:
		head = 1
	}
	if head == 0 || n > uint64(len(b)-head) {
		c.fail(field, "bytes")
		return nil
	}
	end := head + int(n)
	c.rest = b[end:]
	if n == 0 {
		return nil
	}
	return b[head:end:end]
}

// str reads str or bin and copies it.
func (c *cursor) str(field string) string {
	return string(c.bytes(field))
}

// count reads the head of an array; nil is an empty one. The result is never larger than the number
// of bytes that are left.
func (c *cursor) count(field string) int {
	if !c.more() {
		return 0
	}
	b := c.rest
	head, n := 0, uint64(0)
	if len(b) > 0 {
		switch t := b[0]; {
		case t&0xf0 == fixArray:
			head, n = 1, uint64(t&0x0f)
		case t == array16:
			if len(b) >= 3 {
				head, n = 3, uint64(binary.BigEndian.Uint16(b[1:]))
			}
		case t == array32:
			if len(b) >= 5 {
				head, n = 5, uint64(binary.BigEndian.Uint32(b[1:]))
			}
		case t == nilByte:
			head = 1
		}
	}
	if head == 0 || n > uint64(len(b)-head) {
		c.fail(field, "an array")
		return 0
	}
	c.rest = b[head:]
	return int(n)
}

// enter steps into an array that is a field and returns outer; leave(outer) steps out and skips the
// fields added by a newer writer.
func (c *cursor) enter(field string) (outer int) {
	n := c.count(field)
	outer = c.left
	c.left = n
	return outer
}

func (c *cursor) leave(outer int) {
	for c.err == nil && c.left > 0 {
		n, err := valueLen(c.rest, MaxDepth)
		if err != nil {
			c.err = err
			break
		}
		c.rest = c.rest[n:]
		c.left--
	}
	if c.err != nil {
		c.rest, c.left = nil, 0
		return
	}
	c.left = outer
}

// uints reads an array of unsigned integers.
func (c *cursor) uints(field string) []uint64 {
	outer := c.enter(field)
	var out []uint64
	if c.left > 0 {
		out = make([]uint64, 0, c.left)
	}
	for c.err == nil && c.left > 0 {
		out = append(out, c.uint(field))
	}
	c.leave(outer)
	return out
}

// strs reads an array of texts.
func (c *cursor) strs(field string) []string {
	outer := c.enter(field)
	var out []string
	if c.left > 0 {
		out = make([]string, 0, c.left)
	}
	for c.err == nil && c.left > 0 {
		out = append(out, c.str(field))
	}
	c.leave(outer)
	return out
}
