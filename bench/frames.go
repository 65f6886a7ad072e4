package bench

import "encoding/binary"

// frames takes the bytes of a connection apart. A frame that comes in pieces is put together in a
// buffer that thousands of connections share in turn: with one each, and none kept, the collector of
// the reading process takes the time of what is measured.
type frames struct {
	take func(frame []byte) error
	free *[][]byte // buffers of frameBuffer bytes
	part []byte    // of a frame that is not whole yet; with its length known, it has room for all of it
}

const frameBuffer = 160 << 10

// missing is room for the rest of a frame whose length is known.
func (f *frames) missing() []byte {
	if len(f.part) < 4 {
		return nil
	}
	return f.part[len(f.part) : 4+binary.BigEndian.Uint32(f.part)]
}

// filled notes that so many bytes of what was missing have come.
func (f *frames) filled(n int) error {
	f.part = f.part[:len(f.part)+n]
	if len(f.missing()) > 0 {
		return nil
	}
	whole := f.part
	f.part = nil
	err := f.take(whole[4:])
	if cap(whole) == frameBuffer {
		*f.free = append(*f.free, whole)
	}
	return err
}

// feed takes bytes.
func (f *frames) feed(b []byte) (err error) {
	for len(b) > 0 && err == nil {
		if len(f.part) == 0 && len(b) >= 4 {
			if size := 4 + int(binary.BigEndian.Uint32(b)); len(b) >= size {
				err, b = f.take(b[4:size]), b[size:]
				continue
			}
		}
		if missing := 4 - len(f.part); missing > 0 {
			n := min(missing, len(b))
			f.part, b = append(f.part, b[:n]...), b[n:]
			if len(f.part) == 4 {
				f.part = append(f.buffer(4+int(binary.BigEndian.Uint32(f.part))), f.part...)
				err = f.filled(0)
			}
			continue
		}
		n := copy(f.missing(), b)
		err, b = f.filled(n), b[n:]
	}
	return err
}

// buffer is an empty one with room for so many bytes.
func (f *frames) buffer(size int) []byte {
	if size > frameBuffer {
		return make([]byte, 0, size)
	}
	last := len(*f.free) - 1
	if last < 0 {
		return make([]byte, 0, frameBuffer)
	}
	b := (*f.free)[last][:0]
	*f.free = (*f.free)[:last]
	return b
}
