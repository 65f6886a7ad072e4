package meta

import (
	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/protocol/varint"
)

// FormatVersion is the version of commands, results and snapshots that this binary writes. Apply
// reads exactly the fields of an entry's own version.
//
// Version history
//
//	1  first version
const FormatVersion = 1

// The codec: unsigned varints, byte strings after a varint length, lists after a varint count. No
// field is optional within a version.

// codec writes a record's fields, or reads them: one list of fields does both.
type codec struct {
	r *varint.Reader // nil: fields are appended to b
	b []byte
}

// encode appends the fields of a record.
func encode(b []byte, fields func(f *codec)) []byte {
	f := codec{b: b}
	fields(&f)
	return f.b
}

func (f *codec) uint(v *uint64) {
	if f.r != nil {
		*v = f.r.Uint()
		return
	}
	f.b = varint.Append(f.b, *v)
}

func (f *codec) uint32(v *uint32) {
	if f.r != nil {
		*v = f.r.Uint32()
		return
	}
	f.b = varint.Append(f.b, uint64(*v))
}

func byteField[T ~uint8](f *codec, v *T) {
	if f.r != nil {
		*v = T(f.r.Byte())
		return
	}
	f.b = append(f.b, byte(*v))
}

func (f *codec) bool(v *bool) {
	if f.r != nil {
		*v = f.r.Bool()
		return
	}
	f.b = varint.AppendBool(f.b, *v)
}

// text is a string of at most so many bytes. A longer one can be written, and not read. It is
// copied: the state must not alias an entry.
func (f *codec) text(v *string, most int) {
	if f.r != nil {
		*v = string(f.r.Bytes(most))
		return
	}
	f.b = varint.AppendBytes(f.b, *v)
}

// fixed is a field of fixed length.
func (f *codec) fixed(field []byte) {
	if f.r != nil {
		f.r.Fixed(field)
		return
	}
	f.b = append(f.b, field...)
}

// listField is a list. Reading grows it with the bytes that are there: a count alone allocates
// nothing.
func listField[T any](f *codec, list *[]T, most int, fields func(*T, *codec)) {
	if f.r == nil {
		f.b = varint.Append(f.b, uint64(len(*list)))
		for i := range *list {
			fields(&(*list)[i], f)
		}
		return
	}
	*list = nil
	for range f.r.Count(most) {
		var x T
		fields(&x, f)
		if f.r.Failed {
			*list = nil
			return
		}
		*list = append(*list, x)
	}
}

func (f *codec) domain(v *[]Label) { listField(f, v, maxLabels, (*Label).fields) }

func (f *codec) config(c *protocol.NodeConfig) {
	f.uint32(&c.Fields)
	f.uint(&c.SelfCheckPeriod)
	f.uint(&c.GracePeriod)
	byteField(f, &c.ReadConsistency)
	byteField(f, &c.AttachConsistency)
	byteField(f, &c.CountersMode)
	f.uint(&c.MaxSessions)
	f.uint(&c.MaxSemaphores)
	f.uint(&c.MaxBytes)
	f.uint(&c.MaxWaiters)
	f.uint(&c.MaxWatchers)
	f.uint(&c.MaxRequests)
}
