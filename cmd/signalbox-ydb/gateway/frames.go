package gateway

import "encoding/binary"

// Kinds and flags of HTTP/2's frames (RFC 9113, section 6).
const (
	frameData      = 0
	frameHeaders   = 1
	frameRSTStream = 3

	flagEndStream = 1
	flagPadded    = 8

	frameHeadLen = 9
	// prefaceLen is how much a client sends before its first frame.
	prefaceLen = 24
)

// frame is the head of a frame.
type frame struct {
	kind, flags byte
	stream      uint32
	length      int // of the payload
}

func (f frame) ends() bool { return f.flags&flagEndStream != 0 && f.kind <= frameHeaders }

// frames finds the frames in one direction of a connection. The zero value begins with a frame.
type frames struct {
	skip int // bytes before the first frame
	head [frameHeadLen]byte
	have int // of head
	left int // of the payload
	now  frame
}

// feed reads what comes next on the connection. It calls payload with the parts of each DATA frame's
// payload, and end behind each frame.
func (s *frames) feed(b []byte, payload func(frame, []byte), end func(frame)) {
	n := min(s.skip, len(b))
	s.skip, b = s.skip-n, b[n:]
	for len(b) > 0 {
		if s.have < frameHeadLen {
			n := copy(s.head[s.have:], b)
			s.have, b = s.have+n, b[n:]
			if s.have < frameHeadLen {
				return
			}
			h := &s.head
			s.now = frame{kind: h[3], flags: h[4], stream: binary.BigEndian.Uint32(h[5:]) &^ (1 << 31),
				length: int(h[0])<<16 | int(h[1])<<8 | int(h[2])}
			s.left = s.now.length
		}
		n := min(len(b), s.left)
		if n > 0 && s.now.kind == frameData {
			payload(s.now, b[:n])
		}
		s.left, b = s.left-n, b[n:]
		if s.left == 0 {
			end(s.now)
			s.have = 0
		}
	}
}
