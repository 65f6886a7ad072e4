package shard

import (
	"encoding/binary"
	"errors"

	"github.com/signalbox-dev/signalbox/protocol"
)

// Errors of reading a batch. A batch that is malformed is a no-op on every replica. A batch of a format this binary does not know must stop
// the replica: another binary would apply it, and skipping it would make the two diverge.
var (
	ErrMalformed = errors.New("shard: batch is malformed")
	ErrFormat    = errors.New("shard: batch has a format version this binary does not know; upgrade it before it reads this log")
)

// AppendHeader begins a batch. Layout: format (1 byte), then epoch, seq, log time and wall time as uvarints.
func AppendHeader(b []byte, h Header) []byte {
	b = append(b, h.Format)
	b = binary.AppendUvarint(b, h.Epoch)
	b = binary.AppendUvarint(b, h.Seq)
	b = binary.AppendUvarint(b, h.LogTime)
	return binary.AppendUvarint(b, h.Wall)
}

// AppendCommand adds a command to a batch. Layout: kind (1 byte), node, epoch, client with its length before it, body with its length before
// it; numbers are uvarints. The body is copied.
func AppendCommand(b []byte, c Command) []byte {
	b = append(b, byte(c.Kind))
	b = binary.AppendUvarint(b, c.Node)
	b = binary.AppendUvarint(b, c.Epoch)
	b = binary.AppendUvarint(b, uint64(len(c.Client)))
	b = append(b, c.Client...)
	b = binary.AppendUvarint(b, uint64(len(c.Body)))
	return append(b, c.Body...)
}

// ReadHeader reads the header of a batch; rest are its commands, aliasing entry. The error is ErrMalformed or ErrFormat.
func ReadHeader(entry []byte) (h Header, rest []byte, err error) {
	r := reader{b: entry}
	h.Format = r.byte()
	if r.bad {
		return Header{}, nil, ErrMalformed
	}
	if h.Format == 0 || h.Format > FormatVersion {
		return h, nil, ErrFormat
	}
	h.Epoch, h.Seq, h.LogTime, h.Wall = r.uvarint(), r.uvarint(), r.uvarint(), r.uvarint()
	if r.bad {
		return Header{}, nil, ErrMalformed
	}
	return h, r.b, nil
}

// ReadCommand reads the next command of a batch; body aliases the input. Client is not copied into a string unless copyClient is set.
func ReadCommand(in []byte) (c Command, rest []byte, err error) {
	var raw rawCommand
	r := reader{b: in}
	if !raw.read(&r) {
		return Command{}, nil, ErrMalformed
	}
	return Command{Kind: raw.kind, Node: raw.node, Epoch: raw.epoch, Client: string(raw.client), Body: raw.body}, r.b, nil
}

// rawCommand is a command as Apply reads it: nothing is copied.
type rawCommand struct {
	kind   CommandKind
	node   uint64
	epoch  uint64
	client []byte
	body   []byte
}

func (c *rawCommand) read(r *reader) bool {
	c.kind = CommandKind(r.byte())
	c.node = r.uvarint()
	c.epoch = r.uvarint()
	c.client = r.bytes()
	c.body = r.bytes()
	return !r.bad
}

// reader reads numbers and byte strings from the front of b. The first error sticks, and everything after it reads as zero.
type reader struct {
	b   []byte
	bad bool
}

func (r *reader) byte() byte {
	if len(r.b) == 0 {
		r.bad = true
		return 0
	}
	v := r.b[0]
	r.b = r.b[1:]
	return v
}

func (r *reader) bool() bool { return r.byte() != 0 }

func (r *reader) uvarint() uint64 {
	if len(r.b) > 0 && r.b[0] < 0x80 {
		v := r.b[0]
		r.b = r.b[1:]
		return uint64(v)
	}
	v, n := binary.Uvarint(r.b)
	if n <= 0 {
		r.bad = true
		r.b = nil
		return 0
	}
	r.b = r.b[n:]
	return v
}

// bytes reads a length and that many bytes, aliasing the input.
func (r *reader) bytes() []byte {
	n := r.uvarint()
	if r.bad || n > uint64(len(r.b)) {
		r.bad = true
		r.b = nil
		return nil
	}
	v := r.b[:n:n]
	r.b = r.b[n:]
	return v
}

// count reads the length of a list whose items take at least one byte each, so that no length can promise more than the input holds.
func (r *reader) count() int {
	n := r.uvarint()
	if r.bad || n > uint64(len(r.b)) {
		r.bad = true
		r.b = nil
		return 0
	}
	return int(n)
}

func appendBytes(b, v []byte) []byte {
	b = binary.AppendUvarint(b, uint64(len(v)))
	return append(b, v...)
}

func appendString(b []byte, v string) []byte {
	b = binary.AppendUvarint(b, uint64(len(v)))
	return append(b, v...)
}

func appendBool(b []byte, v bool) []byte {
	if v {
		return append(b, 1)
	}
	return append(b, 0)
}

// AppendDetach appends the body of a CmdDetach.
func AppendDetach(b []byte, x DetachBody) []byte {
	b = binary.AppendUvarint(b, uint64(len(x.Sessions)))
	for _, s := range x.Sessions {
		b = binary.AppendUvarint(b, s.Session)
		b = binary.AppendUvarint(b, s.Epoch)
		b = binary.AppendUvarint(b, s.LastContact)
	}
	return b
}

// AppendRemoteEnded appends the body of a CmdRemoteEnded.
func AppendRemoteEnded(b []byte, x RemoteEndedBody) []byte {
	b = binary.AppendUvarint(b, uint64(len(x.Sessions)))
	for _, id := range x.Sessions {
		b = binary.AppendUvarint(b, id)
	}
	return b
}

// AppendRemoteUpdate appends the body of a CmdRemoteUpdate.
func AppendRemoteUpdate(b []byte, x RemoteUpdateBody) []byte {
	b = binary.AppendUvarint(b, x.Session)
	b = binary.AppendUvarint(b, x.Epoch)
	b = appendString(b, x.Description)
	return appendBool(b, x.Detached)
}

func (x *RemoteUpdateBody) read(body []byte) bool {
	r := reader{b: body}
	x.Session, x.Epoch, x.Description, x.Detached = r.uvarint(), r.uvarint(), string(r.bytes()), r.bool()
	return !r.bad && len(r.b) == 0
}

// AppendNodePut appends the body of a CmdNodePut.
func AppendNodePut(b []byte, x NodePutBody) []byte {
	b = binary.AppendUvarint(b, x.Node)
	b = binary.AppendUvarint(b, x.Revision)
	return appendConfig(b, x.Config)
}

func (x *NodePutBody) read(body []byte) bool {
	r := reader{b: body}
	x.Node, x.Revision = r.uvarint(), r.uvarint()
	x.Config = r.config()
	return !r.bad && len(r.b) == 0
}

// AppendNodeDrop appends the body of a CmdNodeDrop.
func AppendNodeDrop(b []byte, x NodeDropBody) []byte {
	return binary.AppendUvarint(b, x.Node)
}

func (x *NodeDropBody) read(body []byte) bool {
	r := reader{b: body}
	x.Node = r.uvarint()
	return !r.bad && len(r.b) == 0
}

// AppendBuckets appends the body of a CmdBuckets, CmdFreeze, CmdActivate or CmdDropBuckets.
func AppendBuckets(b []byte, x BucketsBody) []byte {
	b = append(b, x.Tier)
	b = binary.AppendUvarint(b, uint64(x.Total))
	b = binary.AppendUvarint(b, uint64(x.First))
	b = binary.AppendUvarint(b, uint64(x.Count))
	return binary.AppendUvarint(b, x.Epoch)
}

// ReadBuckets reads what AppendBuckets wrote.
func ReadBuckets(body []byte) (x BucketsBody, err error) {
	if !x.read(body) {
		return BucketsBody{}, ErrMalformed
	}
	return x, nil
}

func (x *BucketsBody) read(body []byte) bool {
	r := reader{b: body}
	return x.readFrom(&r) && len(r.b) == 0
}

func (x *BucketsBody) readFrom(r *reader) bool {
	x.Tier = r.byte()
	total, first, count := r.uvarint(), r.uvarint(), r.uvarint()
	x.Epoch = r.uvarint()
	if r.bad || total > maxBuckets || first > total || count > total-first {
		return false
	}
	x.Total, x.First, x.Count = uint32(total), uint32(first), uint32(count)
	return true
}

// AppendImport appends the body of a CmdImport.
func AppendImport(b []byte, x ImportBody) []byte {
	return append(AppendBuckets(b, x.BucketsBody), x.Chunk...)
}

func (x *ImportBody) read(body []byte) bool {
	r := reader{b: body}
	ok := x.BucketsBody.readFrom(&r)
	x.Chunk = r.b
	return ok
}

func appendConfig(b []byte, c protocol.NodeConfig) []byte {
	b = binary.AppendUvarint(b, uint64(c.Fields))
	b = binary.AppendUvarint(b, c.SelfCheckPeriod)
	b = binary.AppendUvarint(b, c.GracePeriod)
	b = append(b, byte(c.ReadConsistency), byte(c.AttachConsistency), byte(c.CountersMode))
	b = binary.AppendUvarint(b, c.MaxSessions)
	b = binary.AppendUvarint(b, c.MaxSemaphores)
	b = binary.AppendUvarint(b, c.MaxBytes)
	b = binary.AppendUvarint(b, c.MaxWaiters)
	b = binary.AppendUvarint(b, c.MaxWatchers)
	return binary.AppendUvarint(b, c.MaxRequests)
}

func (r *reader) config() (c protocol.NodeConfig) {
	c.Fields = uint32(r.uvarint())
	c.SelfCheckPeriod, c.GracePeriod = r.uvarint(), r.uvarint()
	c.ReadConsistency = protocol.Consistency(r.byte())
	c.AttachConsistency = protocol.Consistency(r.byte())
	c.CountersMode = protocol.CountersMode(r.byte())
	c.MaxSessions, c.MaxSemaphores = r.uvarint(), r.uvarint()
	c.MaxBytes, c.MaxWaiters, c.MaxWatchers, c.MaxRequests = r.uvarint(), r.uvarint(), r.uvarint(), r.uvarint()
	return c
}

// ReadRemoteEnded reads what AppendRemoteEnded wrote.
func ReadRemoteEnded(body []byte) (x RemoteEndedBody, err error) {
	r := reader{b: body}
	for range r.count() {
		x.Sessions = append(x.Sessions, r.uvarint())
	}
	if r.bad || len(r.b) != 0 {
		return RemoteEndedBody{}, ErrMalformed
	}
	return x, nil
}
