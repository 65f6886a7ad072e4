// Package msgpack is a codec of package process for messages in MessagePack. It is a package of its
// own since it needs a foreign module, which the SDK does not.
//
//	var votes = process.NewMessages(msgpack.Codec[Question](), msgpack.Codec[Vote]())
//
// Structs are maps by field name, so that members of two versions understand each other while a
// field is added. Bytes behind a value are refused: they are a sign of another codec, which some of
// its values look like.
package msgpack

import (
	"bytes"
	"fmt"

	"github.com/vmihailenco/msgpack/v5"

	"github.com/signalbox-dev/signalbox/client/process"
)

// Codec encodes values of T as MessagePack, structs as maps by the name of their fields. What T has
// no field for is ignored; what stands behind the value is an error.
func Codec[T any]() process.Codec[T] { return codec[T]{} }

type codec[T any] struct{}

func (codec[T]) Encode(v T) ([]byte, error) { return msgpack.Marshal(v) }

func (codec[T]) Decode(b []byte) (v T, err error) {
	r := bytes.NewReader(b)
	if err = msgpack.NewDecoder(r).Decode(&v); err == nil && r.Len() > 0 {
		err = fmt.Errorf("%d bytes stand behind the value", r.Len())
	}
	return v, err
}
