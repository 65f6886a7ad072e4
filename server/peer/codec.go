package peer

import (
	"bytes"

	"github.com/vmihailenco/msgpack/v5"

	"github.com/signalbox-dev/signalbox/protocol"
)

// Encode makes a body of a value, a struct as a rule: a msgpack array that holds the value alone, structs as maps by the names of their fields. So fields may
// be added: what an instance does not know it ignores, what it is not sent is zero.
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

// Decode fills what v points to from a body. The structure is checked first (one array, lengths and counts within the bytes there are, at most 6
// levels below it), so that no bytes make the decoder take more memory or stack than they are worth. Errors are StatusBadRequest.
func Decode(body []byte, v any) (err error) {
	if err := protocol.CheckBody(body); err != nil {
		return err
	}
	defer func() {
		if r := recover(); r != nil {
			err = protocol.Errorf(protocol.StatusBadRequest, "body does not fit: %v", r)
		}
	}()
	d := msgpack.NewDecoder(bytes.NewReader(body))
	n, err := d.DecodeArrayLen()
	if err == nil && n != 1 {
		return protocol.Errorf(protocol.StatusBadRequest, "body is an array of %d values; it has exactly one", n)
	}
	if err == nil {
		err = d.Decode(v)
	}
	if err != nil {
		return protocol.Errorf(protocol.StatusBadRequest, "body does not fit: %v", err)
	}
	return nil
}
