package shard

import (
	"errors"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/protocol/varint"
	"github.com/signalbox-dev/signalbox/shard/queue"
)

// Errors of reading a batch. A batch that is malformed is a no-op on every replica. A batch of a
// format this binary does not know must stop the replica: another binary would apply it, and
// skipping it would make the two diverge.
var (
	ErrMalformed = errors.New("shard: batch is malformed")
	ErrFormat    = errors.New("shard: batch has a format version this binary does not know; upgrade it before it reads this log")
)

// AppendHeader begins a batch. Layout: format (1 byte), then epoch, seq, log time and wall time as
// uvarints.
func AppendHeader(b []byte, h Header) []byte {
	b = append(b, h.Format)
	return varint.Append(b, h.Epoch, h.Seq, h.LogTime, h.Wall)
}

// AppendCommand adds a command to a batch. Layout: kind (1 byte), node, epoch, sender with its
// length before it, body with its length before it; numbers are uvarints. The body is copied.
func AppendCommand(b []byte, c Command) []byte {
	b = append(b, byte(c.Kind))
	b = varint.Append(b, c.Node, c.Epoch, uint64(len(c.Sender)))
	b = append(b, c.Sender...)
	b = varint.Append(b, uint64(len(c.Body)))
	return append(b, c.Body...)
}

// ReadHeader reads the header of a batch; rest are its commands, aliasing entry. The error is
// ErrMalformed or ErrFormat.
func ReadHeader(entry []byte) (h Header, rest []byte, err error) {
	r := varint.Reader{Rest: entry}
	h.Format = r.Byte()
	if r.Failed {
		return Header{}, nil, ErrMalformed
	}
	if h.Format == 0 || h.Format > FormatVersion {
		return h, nil, ErrFormat
	}
	h.Epoch, h.Seq, h.LogTime, h.Wall = r.Uint(), r.Uint(), r.Uint(), r.Uint()
	if r.Failed {
		return Header{}, nil, ErrMalformed
	}
	return h, r.Rest, nil
}

// ReadCommand reads the next command of a batch. Body aliases the input, Client is a copy.
func ReadCommand(in []byte) (c Command, rest []byte, err error) {
	var raw rawCommand
	r := varint.Reader{Rest: in}
	if !raw.read(&r) {
		return Command{}, nil, ErrMalformed
	}
	return Command{Kind: raw.kind, Node: raw.node, Epoch: raw.epoch, Sender: string(raw.sender), Body: raw.body},
		r.Rest, nil
}

// rawCommand is a command as Apply reads it: nothing is copied.
type rawCommand struct {
	kind   CommandKind
	node   uint64
	epoch  uint64
	sender []byte
	body   []byte
}

func (c *rawCommand) read(r *varint.Reader) bool {
	c.kind = CommandKind(r.Byte())
	c.node = r.Uint()
	c.epoch = r.Uint()
	c.sender = r.Bytes(varint.NoLimit)
	c.body = r.Bytes(varint.NoLimit)
	return !r.Failed
}

// readBody reads a body with these fields. What is left, or missing, is malformed.
func readBody(body []byte, fields func(*varint.Fields)) bool {
	r := varint.Reader{Rest: body}
	varint.Decode(&r, fields)
	return r.Done()
}

// AppendDetach appends the body of a CmdDetach.
func AppendDetach(b []byte, x DetachBody) []byte { return varint.Encode(b, x.fields) }

func (d *DetachBody) fields(f *varint.Fields) {
	varint.List(f, &d.Sessions, varint.NoLimit, func(s *DetachItem, f *varint.Fields) {
		f.Uint(&s.Session, &s.Epoch, &s.LastContact)
		varint.Byte(f, &s.Link)
	})
	f.Uint(&d.Stood, &d.StoodAt)
}

// AppendRemoteEnded appends the body of a CmdRemoteEnded.
func AppendRemoteEnded(b []byte, x RemoteEndedBody) []byte { return varint.Encode(b, x.fields) }

func (e *RemoteEndedBody) fields(f *varint.Fields) {
	varint.List(f, &e.Sessions, varint.NoLimit, (*RemoteEnd).fields)
}

// EndingFields are the fields of how a session ended.
func EndingFields(f *varint.Fields, x *protocol.Ending) { queue.EndingFields(f, x) }

func (e *RemoteEnd) fields(f *varint.Fields) {
	f.Uint(&e.Session)
	queue.EndingFields(f, &e.Ending)
}

// ReadRemoteEnded reads what AppendRemoteEnded wrote.
func ReadRemoteEnded(body []byte) (x RemoteEndedBody, err error) {
	if !readBody(body, x.fields) {
		return RemoteEndedBody{}, ErrMalformed
	}
	return x, nil
}

// AppendRemoteUpdate appends the body of a CmdRemoteUpdate.
func AppendRemoteUpdate(b []byte, x RemoteUpdateBody) []byte { return varint.Encode(b, x.fields) }

func (u *RemoteUpdateBody) fields(f *varint.Fields) {
	f.Uint(&u.Session, &u.Epoch)
	f.Text(&u.Description, varint.NoLimit)
	f.Bool(&u.Detached)
}

// AppendNodePut appends the body of a CmdNodePut.
func AppendNodePut(b []byte, x NodePutBody) []byte { return varint.Encode(b, x.fields) }

func (n *NodePutBody) fields(f *varint.Fields) {
	f.Uint(&n.Node, &n.Revision)
	configFields(f, &n.Config)
	f.Uint(&n.TokenFloor)
}

// AppendNodeDrop appends the body of a CmdNodeDrop.
func AppendNodeDrop(b []byte, x NodeDropBody) []byte { return varint.Encode(b, x.fields) }

func (n *NodeDropBody) fields(f *varint.Fields) { f.Uint(&n.Node) }

// AppendBuckets appends the body of a CmdBuckets, CmdFreeze, CmdActivate or CmdDropBuckets.
func AppendBuckets(b []byte, x BucketsBody) []byte {
	b = append(b, x.Tier)
	return varint.Append(b, uint64(x.Total), uint64(x.First), uint64(x.Count), x.Epoch)
}

func (b *BucketsBody) read(body []byte) bool {
	r := varint.Reader{Rest: body}
	return b.readFrom(&r) && len(r.Rest) == 0
}

func (b *BucketsBody) readFrom(r *varint.Reader) bool {
	b.Tier = r.Byte()
	total, first, count := r.Uint(), r.Uint(), r.Uint()
	b.Epoch = r.Uint()
	if r.Failed || total > maxBuckets || first > total || count > total-first {
		return false
	}
	b.Total, b.First, b.Count = uint32(total), uint32(first), uint32(count)
	return true
}

// AppendImport appends the body of a CmdImport.
func AppendImport(b []byte, x ImportBody) []byte {
	return append(AppendBuckets(b, x.BucketsBody), x.Chunk...)
}

func (i *ImportBody) read(body []byte) bool {
	r := varint.Reader{Rest: body}
	ok := i.BucketsBody.readFrom(&r)
	i.Chunk = r.Rest
	return ok
}

// configFields are those of a node's config. Those that came later are there if they are set.
func configFields(f *varint.Fields, config *protocol.NodeConfig) {
	c := *config
	if !f.Reading() {
		if c.SlowWait != 0 {
			c.Fields |= protocol.FieldSlowWait
		}
		if c.MaxPriority != 0 {
			c.Fields |= protocol.FieldMaxPriority
		}
		if c.Foreign != "" {
			c.Fields |= protocol.FieldForeign
		}
	}
	f.Uint32(&c.Fields)
	f.Uint(&c.SelfCheckPeriod, &c.GracePeriod)
	varint.Byte(f, &c.ReadConsistency)
	varint.Byte(f, &c.AttachConsistency)
	varint.Byte(f, &c.CountersMode)
	f.Uint(&c.MaxSessions, &c.MaxSemaphores, &c.MaxBytes, &c.MaxWaiters, &c.MaxWatchers, &c.MaxRequests)
	if c.Fields&protocol.FieldSlowWait != 0 {
		f.Uint(&c.SlowWait)
	}
	if c.Fields&protocol.FieldMaxPriority != 0 {
		varint.Byte(f, &c.MaxPriority)
	}
	if c.Fields&protocol.FieldForeign != 0 {
		f.Text(&c.Foreign, protocol.MaxForeignLen)
	}
	if f.Reading() {
		*config = c
	}
}
