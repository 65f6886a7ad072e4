package protocol

import "sync"

// Message is a body that can be written and read: a pointer to a struct of this package that
// DESIGN.md lists as a message. Those that have methods with the names of the functions below are
// written by hand for these passes, see hot_messages.go: the functions call them.
type Message interface{ fields(f *fields) }

// AppendBody appends a message as one msgpack array of its fields, in the order of the struct. It
// allocates only when b is too short.
func AppendBody(b []byte, m Message) []byte {
	if x, ok := m.(interface{ AppendBody([]byte) []byte }); ok {
		return x.AppendBody(b)
	}
	f := begin(encoder(b), m)
	b = f.body()
	f.end()
	return b
}

// DecodeBody sets every field of a message from one msgpack array: fields missing at the end become
// zero, further ones are skipped. A field of another type, or out of its type's range, is a *Error
// with StatusBadRequest that names it; the message is then unusable.
//
// Ownership: decoded []byte fields alias body, so a caller that keeps one copies it first; strings
// and lists are copies. Any bytes are safe to decode, but only bytes that passed ParseFrame or
// CheckBody are known to be one whole value.
func DecodeBody(m Message, body []byte) error {
	if x, ok := m.(interface{ DecodeBody([]byte) error }); ok {
		return x.DecodeBody(body)
	}
	return outcome(begin(decoder(body), m))
}

// Validate compares the arguments of a request with their limits, in the order of the fields; the
// number of the request comes last. It needs no state. An error is a *Error, StatusBadRequest unless
// said otherwise, and says what to do. The listener and the state machine both call it, so that
// nothing reaches the state that the specification forbids.
func Validate(m Message) error {
	if x, ok := m.(interface{ Validate() error }); ok {
		return x.Validate()
	}
	return outcome(begin(checker(), m))
}

// passes are used again. One that a message goes through by an interface is on the heap, since
// nobody knows what the message does with it.
var passes = sync.Pool{New: func() any { return new(fields) }}

// begin has a message go through a pass.
func begin(pass fields, m Message) *fields {
	f := passes.Get().(*fields)
	*f = pass
	m.fields(f)
	return f
}

func (f *fields) end() {
	*f = fields{}
	passes.Put(f)
}

// outcome ends a pass that decodes or checks.
func outcome(f *fields) error {
	err := f.err()
	f.end()
	return err
}
