package bench

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"testing"
)

// TestFramesInPieces: frames of several connections come in pieces of any length, read into the room
// that they miss or copied there. Each comes out whole, and buffers are used again.
func TestFramesInPieces(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 7))
	var free [][]byte
	type conn struct {
		frames
		in        []byte
		want, got [][]byte
	}
	var conns []*conn
	for range 3 {
		c := &conn{frames: frames{free: &free}}
		c.take = func(frame []byte) error {
			c.got = append(c.got, bytes.Clone(frame))
			return nil
		}
		for range 60 {
			frame := bytes.Repeat([]byte{byte(r.Uint32())}, r.IntN([]int{3, 50, 5000, 2 * frameBuffer}[r.IntN(4)]))
			c.want = append(c.want, frame)
			c.in = append(binary.BigEndian.AppendUint32(c.in, uint32(len(frame))), frame...)
		}
		conns = append(conns, c)
	}
	for left := len(conns); left > 0; {
		left = 0
		for _, c := range conns {
			n := min(len(c.in), 1+r.IntN([]int{2, 20, 5000, 3 * frameBuffer}[r.IntN(4)]))
			b := c.in[:n]
			if r.IntN(2) == 0 && len(b) > 0 {
				if m := copy(c.missing(), b); m > 0 {
					if err := c.filled(m); err != nil {
						t.Fatal(err)
					}
					b = b[m:]
				}
			}
			if err := c.feed(b); err != nil {
				t.Fatal(err)
			}
			c.in = c.in[n:]
			left += len(c.in)
		}
	}
	for i, c := range conns {
		if !slices.EqualFunc(c.got, c.want, bytes.Equal) {
			t.Errorf("connection %d: %d frames came out of %d, or others", i, len(c.got), len(c.want))
		}
	}
	if len(free) == 0 || len(free) > len(conns) {
		t.Errorf("%d buffers were used for %d connections", len(free), len(conns))
	}
}
