package gateway

import (
	"context"
	"encoding/binary"
	"net"
	"reflect"
	"sync"

	"google.golang.org/grpc"
)

// inbound follows the messages that come on one connection. gRPC shows a message when it is whole,
// each stream's on a goroutine of its own. That shows neither the message being received nor which
// of two streams' messages came first.
type inbound struct {
	kept *share // the bytes of long messages, until they were taken; nil: they are not counted

	mu      sync.Mutex
	in, out frames
	data    int // of the DATA frame that comes, without its padding
	streams map[uint32]*inStream
	parts   int64      // bytes of long messages that are not whole yet
	arrived []*arrival // the messages of followed streams that were not taken, in order
}

// longMessage is the length from which a message counts before it is whole, in bytes.
const longMessage = leastUpload

// messageHeadLen is the length of gRPC's head of a message: a flag, and its length.
const messageHeadLen = 5

// inStream is a stream whose client may send more.
type inStream struct {
	head     [messageHeadLen]byte
	have     int    // of head
	length   int    // of the message
	left     int    // of the message
	whole    uint64 // messages so far
	followed bool
	arrived  []*arrival // of inbound's, this stream's
}

// arrival is the place of a whole message among those of its connection.
type arrival struct {
	of     *inbound
	number uint64 // of its stream's messages, from 1
	bytes  int    // of a long message
	taken  bool
	first  chan struct{} // closed when all before it were taken, if somebody waits
}

func newInbound(kept *share) *inbound {
	return &inbound{kept: kept, in: frames{skip: prefaceLen}, streams: make(map[uint32]*inStream)}
}

// received is called with received bytes, before gRPC gets them.
func (i *inbound) received(b []byte) {
	i.mu.Lock()
	defer i.mu.Unlock()
	fresh := 0 // of long messages
	i.in.feed(b, func(f frame, part []byte) {
		if i.in.left == f.length {
			i.data = f.length
			if f.flags&flagPadded != 0 {
				i.data -= 1 + int(part[0])
				part = part[1:]
			}
		}
		part = part[:max(min(len(part), i.data), 0)]
		i.data -= len(part)
		if s := i.streams[f.stream]; s != nil {
			fresh += i.feed(s, part)
		}
	}, func(f frame) {
		switch {
		case f.kind == frameHeaders && i.streams[f.stream] == nil && !f.ends():
			i.streams[f.stream] = new(inStream)
		case f.kind == frameRSTStream, f.ends():
			fresh -= i.drop(f.stream)
		}
	})
	i.count(fresh)
}

// sent is called with sent bytes: a stream that the gateway ends gets no more messages.
func (i *inbound) sent(b []byte) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.out.feed(b, func(frame, []byte) {}, func(f frame) {
		if f.kind == frameRSTStream || f.ends() {
			i.count(-i.drop(f.stream))
		}
	})
}

// count counts bytes that are kept, or with n below 0 no more. mu is held.
func (i *inbound) count(n int) {
	if n != 0 && i.kept != nil {
		i.kept.add(n)
	}
}

// feed reads a part of a stream's messages. fresh is how many bytes of long messages are kept for it,
// or no more. mu is held.
func (i *inbound) feed(s *inStream, part []byte) (fresh int) {
	for len(part) > 0 {
		if s.have < messageHeadLen {
			n := copy(s.head[s.have:], part)
			s.have, part = s.have+n, part[n:]
			if s.have < messageHeadLen {
				return fresh
			}
			s.length = int(binary.BigEndian.Uint32(s.head[1:]))
			s.left = s.length
		}
		n := min(len(part), s.left)
		s.left, part = s.left-n, part[n:]
		if s.length >= longMessage {
			i.parts += int64(n)
			fresh += n
		}
		if s.left == 0 {
			s.have = 0
			fresh -= i.completed(s)
		}
	}
	return fresh
}

// completed ends a message. The bytes of one that is not followed are kept no more. mu is held.
func (i *inbound) completed(s *inStream) (freed int) {
	s.whole++
	bytes := 0
	if s.length >= longMessage {
		bytes = s.length
		i.parts -= int64(bytes)
	}
	if !s.followed {
		return bytes
	}
	a := &arrival{of: i, number: s.whole, bytes: bytes}
	s.arrived, i.arrived = append(s.arrived, a), append(i.arrived, a)
	return 0
}

// drop ends a stream. What it has sent of a long message is kept no more. mu is held.
func (i *inbound) drop(id uint32) (freed int) {
	s := i.streams[id]
	delete(i.streams, id)
	if s == nil || s.have < messageHeadLen || s.length < longMessage {
		return 0
	}
	freed = s.length - s.left
	i.parts -= int64(freed)
	return freed
}

// unfinished is how many bytes of long messages have come that are not whole yet.
func (i *inbound) unfinished() int64 {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.parts
}

// follower knows the places of one stream's messages. One goroutine uses it.
type follower struct {
	of   *inbound
	s    *inStream // nil: it knows none
	read uint64    // messages
}

// follow begins with the messages of a call's stream that are not whole yet.
func (i *inbound) follow(call context.Context) *follower {
	i.mu.Lock()
	defer i.mu.Unlock()
	f := &follower{of: i, s: i.streams[streamID(call)]}
	if f.s != nil {
		f.s.followed = true
	}
	return f
}

// next is the place of the message that gRPC has given next, or nil.
func (f *follower) next() *arrival {
	f.of.mu.Lock()
	defer f.of.mu.Unlock()
	f.read++
	if f.s == nil || len(f.s.arrived) == 0 || f.s.arrived[0].number != f.read {
		return nil
	}
	a := f.s.arrived[0]
	f.s.arrived = f.s.arrived[1:]
	return a
}

// end discards the messages that will not be read.
func (f *follower) end() {
	f.of.mu.Lock()
	defer f.of.mu.Unlock()
	if f.s == nil {
		return
	}
	f.s.followed = false
	for _, a := range f.s.arrived {
		a.takeLocked()
	}
	f.s.arrived = nil
}

// wait waits until all that came before was taken, or the context ends.
func (a *arrival) wait(ctx context.Context) {
	if a == nil {
		return
	}
	a.of.mu.Lock()
	first := a.first
	if a.taken || a.of.arrived[0] == a {
		a.of.mu.Unlock()
		return
	}
	if first == nil {
		first = make(chan struct{})
		a.first = first
	}
	a.of.mu.Unlock()
	select {
	case <-first:
	case <-ctx.Done():
	}
}

// take ends the turn of a message: its request has its place in the order of its name.
func (a *arrival) take() {
	if a == nil {
		return
	}
	a.of.mu.Lock()
	defer a.of.mu.Unlock()
	a.takeLocked()
}

func (a *arrival) takeLocked() {
	if a.taken {
		return
	}
	i := a.of
	a.taken = true
	i.count(-a.bytes)
	for len(i.arrived) > 0 && i.arrived[0].taken {
		i.arrived[0] = nil
		i.arrived = i.arrived[1:]
	}
	if len(i.arrived) > 0 && i.arrived[0].first != nil {
		close(i.arrived[0].first)
		i.arrived[0].first = nil
	}
}

// streamID is the HTTP/2 stream of a call, or 0. gRPC keeps it in a field that it does not export.
func streamID(call context.Context) uint32 {
	v := reflect.Indirect(reflect.ValueOf(grpc.ServerTransportStreamFromContext(call)))
	if v.Kind() != reflect.Struct {
		return 0
	}
	id := v.FieldByName("id")
	if !id.IsValid() || id.Kind() != reflect.Uint32 {
		return 0
	}
	return uint32(id.Uint())
}

// followedConn is a connection without encryption, or the inside of one with it.
type followedConn struct {
	net.Conn
	by *inbound
}

func (c followedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.by.received(b[:max(n, 0)])
	return n, err
}

func (c followedConn) Write(b []byte) (int, error) {
	c.by.sent(b)
	return c.Conn.Write(b)
}

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

// feed reads the connection's next bytes. It calls payload with the parts of each DATA frame's
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
