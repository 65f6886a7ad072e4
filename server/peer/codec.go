package peer

import (
	"bytes"

	"github.com/vmihailenco/msgpack/v5"

	"github.com/signalbox-dev/signalbox/protocol"
)

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
