package protocol

// Message is a body that can be written and read. Every struct of this package that DESIGN.md lists
// as a message implements it with a pointer receiver.
type Message interface {
	// AppendBody appends the message as one msgpack array of its fields, in the order of the
	// struct. It allocates only when b is too short.
	AppendBody(b []byte) []byte

	// DecodeBody sets every field of the message from one msgpack array: fields missing at the end
	// become zero, further ones are skipped. A field of another type, or out of its type's range,
	// is a *Error with StatusBadRequest that names it; the message is then unusable.
	//
	// Ownership: decoded []byte fields alias body, so a caller that keeps one copies it first;
	// strings and lists are copies. Any bytes are safe to decode, but only bytes that passed
	// ParseFrame or CheckBody are known to be one whole value.
	DecodeBody(body []byte) error
}

// Validator is implemented by every request. Validate compares the arguments with their limits, in
// the order of the fields; the number of the request comes last. It needs no state. An error is a
// *Error, StatusBadRequest unless said otherwise, and says what to do. The listener and the state
// machine both call it, so that nothing reaches the state that the specification forbids.
type Validator interface {
	Validate() error
}
