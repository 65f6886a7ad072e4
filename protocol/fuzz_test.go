package protocol

import (
	"bytes"
	"reflect"
	"testing"
)

// FuzzSplit: a stream cut into pieces of any size gives the same frames, in the same places, as the
// whole; nothing panics; a parsed frame is written again to a frame that parses to the same.
func FuzzSplit(f *testing.F) {
	var stream []byte
	for i, e := range messages {
		frame := AppendFrame(nil, e.kind, uint64(i), 4000, e.sample)
		f.Add(frame, uint8(1), uint32(MaxFrameLen))
		stream = append(stream, frame...)
	}
	f.Add(stream, uint8(7), uint32(MaxFrameLen))
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 0x94}, uint8(1), uint32(MaxFrameLen))
	f.Add([]byte{0, 0, 0, 0}, uint8(1), uint32(10))
	f.Fuzz(func(t *testing.T, stream []byte, step uint8, limit uint32) {
		type cut struct {
			frames [][]byte
			bad    bool
		}
		read := func(step int) (c cut) {
			have := 0 // bytes that have arrived
			start := 0
			for !c.bad {
				frame, n, err := SplitFrame(stream[start:have], limit)
				switch {
				case err != nil:
					c.bad = true
				case n > 0:
					if n != len(frame)+lengthSize || !bytes.Equal(frame, stream[start+lengthSize:start+n]) {
						t.Fatalf("frame of %d bytes, taken %d", len(frame), n)
					}
					c.frames = append(c.frames, frame)
					start += n
				case have == len(stream):
					return c
				default:
					have = min(have+step, len(stream))
				}
			}
			return c
		}
		whole, pieces := read(max(len(stream), 1)), read(int(step)+1)
		if !reflect.DeepEqual(whole, pieces) {
			t.Fatalf("whole: %d frames, bad %v; in pieces of %d: %d frames, bad %v", len(whole.frames), whole.bad,
				int(step)+1, len(pieces.frames), pieces.bad)
		}
		for _, frame := range whole.frames {
			h, err := ParseFrame(frame)
			if err != nil {
				continue
			}
			if err := CheckBody(h.Body); err != nil {
				t.Fatalf("body % x of a parsed frame: %v", h.Body, err)
			}
			again, err := ParseFrame(AppendFrameRaw(nil, h.Kind, h.ID, h.Arg, h.Body)[lengthSize:])
			if err != nil || !reflect.DeepEqual(again, h) {
				t.Fatalf("%+v became %+v, %v", h, again, err)
			}
		}
	})
}

// FuzzDecode: any bytes decode as any message without a panic, checked before or not; what decodes
// is written to bytes that pass the check and decode to the same; validation does not panic.
func FuzzDecode(f *testing.F) {
	all := allMessages()
	for i, e := range all {
		f.Add(uint8(i), AppendBody(nil, e.sample))
		f.Add(uint8(i), AppendBody(nil, filled(e)))
	}
	f.Add(uint8(0), []byte{0xdd, 0xff, 0xff, 0xff, 0xff})
	f.Add(uint8(0), []byte{0x91, 0xc6, 0xff, 0xff, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, which uint8, body []byte) {
		e := all[int(which)%len(all)]
		before := bytes.Clone(body)
		m := e.fresh()
		err := DecodeBody(m, body)
		_ = Validate(m)
		if !bytes.Equal(body, before) {
			t.Fatal("decoding changed the body")
		}
		if err != nil {
			return
		}
		again := e.fresh()
		written := AppendBody(nil, m)
		if err := CheckBody(written); err != nil {
			t.Fatalf("%+v is written as % x: %v", m, written, err)
		}
		if err := DecodeBody(again, written); err != nil || !reflect.DeepEqual(again, m) {
			t.Fatalf("%+v became %+v, %v", m, again, err)
		}
	})
}
