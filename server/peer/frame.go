package peer

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"

	"github.com/vmihailenco/msgpack/v5"

	"github.com/signalbox-dev/signalbox/protocol"
)

// A frame is a header and a payload. The header has the payload's length (4 bytes, big-endian),
// type, argument, two zeros, and a CRC-32C of these eight bytes and the payload. TCP's own checksum
// misses one broken segment in some ten thousand, and the raft log must not take one.
const (
	frameHeader = 12

	framePing       = 1 // no payload; the dialer sends it, the acceptor replies with a pong
	framePong       = 2
	frameBatch      = 3 // raftpb.MessageBatch
	frameChunk      = 4 // raftpb.Chunk; each is acknowledged before the next
	frameChunkReply = 5 // argument 1: the chunk was accepted, 0: rejected
	frameMessage    = 6 // argument: kind; payload
	frameCall       = 7 // argument: method; id (8 bytes), microseconds left or 0 (8 bytes), body
	frameReply      = 8 // argument: status; id, refusal, body or the error's text
	frameCancel     = 9 // id: the caller no longer waits

	callHeader  = 16
	replyHeader = 9
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

var errFrame = errors.New("malformed frame")

// sealFrame fills in the header of frame b: frameHeader bytes of room, and the payload.
func sealFrame(b []byte, kind, arg byte) {
	binary.BigEndian.PutUint32(b, uint32(len(b)-frameHeader))
	b[4], b[5], b[6], b[7] = kind, arg, 0, 0
	sum := crc32.Update(crc32.Checksum(b[:8], castagnoli), castagnoli, b[frameHeader:])
	binary.BigEndian.PutUint32(b[8:], sum)
}

// appendFrame appends a whole frame. The payload is in two parts so that callers need not join
// them.
func appendFrame(b []byte, kind, arg byte, head, payload []byte) []byte {
	start := len(b)
	var room [frameHeader]byte
	b = append(b, room[:]...)
	b = append(b, head...)
	b = append(b, payload...)
	sealFrame(b[start:], kind, arg)
	return b
}

// frameLimits bounds the payload by frame type; -1 rejects the type.
type frameLimits [frameCancel + 1]int32

// limitsOf returns the limits of frames from one end of a connection of this purpose. The limit 0
// allows an empty payload.
func limitsOf(p purpose, byDialer bool, payload int) (l frameLimits) {
	for i := range l {
		l[i] = -1
	}
	if p != purposeSnapshot {
		l[framePing], l[framePong] = 0, 0
	}
	switch {
	case p == purposeRaft && byDialer:
		l[frameBatch] = maxRaftFrame
	case p == purposeSnapshot && byDialer:
		l[frameChunk] = maxChunk
	case p == purposeSnapshot:
		l[frameChunkReply] = 0
	case p == purposeCalls && byDialer:
		l[frameMessage], l[frameCall], l[frameCancel] = int32(payload), int32(payload+callHeader), 8
	case p == purposeCalls:
		l[frameReply] = int32(payload + replyHeader)
	}
	return l
}

// frameReader reads frames.
type frameReader struct {
	r      io.Reader
	limits frameLimits
	header [frameHeader]byte
}

const readChunk = 1 << 20

// next reads a frame into buf, or into a larger buffer. Memory grows with the received bytes, not
// with the announced length. errFrame: the frame is not allowed here.
func (f *frameReader) next(buf []byte) (kind, arg byte, payload []byte, err error) {
	h := f.header[:]
	if _, err := io.ReadFull(f.r, h); err != nil {
		return 0, 0, nil, err
	}
	length := binary.BigEndian.Uint32(h)
	kind, arg = h[4], h[5]
	if int(kind) >= len(f.limits) || f.limits[kind] < 0 || h[6] != 0 || h[7] != 0 {
		return 0, 0, nil, fmt.Errorf("%w: type %d is not allowed here", errFrame, kind)
	}
	if int64(length) > int64(f.limits[kind]) {
		return 0, 0, nil, fmt.Errorf("%w: %d bytes of payload, %d are allowed", errFrame, length, f.limits[kind])
	}
	payload = buf[:0]
	for n := int(length); len(payload) < n; {
		start := len(payload)
		end := min(n, max(start+readChunk, cap(payload)))
		if end > cap(payload) {
			grown := make([]byte, start, max(end, min(n, 2*start)))
			copy(grown, payload)
			payload = grown
		}
		payload = payload[:end]
		if _, err := io.ReadFull(f.r, payload[start:]); err != nil {
			return 0, 0, nil, unexpectedEOF(err)
		}
	}
	if crc32.Update(crc32.Checksum(h[:8], castagnoli), castagnoli, payload) != binary.BigEndian.Uint32(h[8:]) {
		return 0, 0, nil, fmt.Errorf("%w: checksum mismatch", errFrame)
	}
	return kind, arg, payload, nil
}

func unexpectedEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// Encode encodes a value, usually a struct, as a body: a msgpack array with this one value, structs
// as maps by field name. Fields may be added: an instance ignores unknown fields, and missing ones
// are zero.
func Encode(v any) ([]byte, error) {
	var b bytes.Buffer
	e := msgpack.NewEncoder(&b)
	e.UseCompactInts(true)
	err := e.EncodeArrayLen(1)
	if err == nil {
		err = e.Encode(v)
	}
	if err != nil {
		return nil, protocol.Errorf(protocol.StatusInternal, "body is not encoded: %v", err)
	}
	return b.Bytes(), nil
}

// Decode decodes a body into v. It checks the structure first (one array, lengths and counts within
// the bytes, at most 6 levels), so that no bytes make the decoder use disproportionate memory or
// stack. Errors are StatusBadRequest.
func Decode(body []byte, v any) (err error) {
	if err := protocol.CheckBody(body); err != nil {
		return err
	}
	defer func() {
		if r := recover(); r != nil {
			err = protocol.Errorf(protocol.StatusBadRequest, "body does not match the method: %v", r)
		}
	}()
	d := msgpack.NewDecoder(bytes.NewReader(body))
	n, err := d.DecodeArrayLen()
	if err == nil && n != 1 {
		return protocol.Errorf(protocol.StatusBadRequest, "body is an array of %d values; it must have exactly one", n)
	}
	if err == nil {
		err = d.Decode(v)
	}
	if err != nil {
		return protocol.Errorf(protocol.StatusBadRequest, "body does not match the method: %v", err)
	}
	return nil
}
