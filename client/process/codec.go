package process

import (
	"bytes"
	"encoding/gob"
	"encoding/json"
	"fmt"
)

// Codec turns values into bytes and back: messages, the data of members, results. All members of a
// process must use the same one. It is called from several goroutines.
type Codec[T any] interface {
	Encode(v T) ([]byte, error)
	// Decode may keep parts of b.
	Decode(b []byte) (T, error)
}

// JSON is the codec of encoding/json. What T has no field for is ignored, so that fields can be
// added while members of both versions live.
func JSON[T any]() Codec[T] { return jsonCodec[T]{} }

// Gob is the codec of encoding/gob. Each value carries its type's description, some hundred bytes.
func Gob[T any]() Codec[T] { return gobCodec[T]{} }

// Text is the codec of strings and byte slices as they are.
func Text[T ~string | ~[]byte]() Codec[T] { return textCodec[T]{} }

type jsonCodec[T any] struct{}

func (jsonCodec[T]) Encode(v T) ([]byte, error) { return json.Marshal(v) }

func (jsonCodec[T]) Decode(b []byte) (v T, err error) {
	err = json.Unmarshal(b, &v)
	return v, err
}

type gobCodec[T any] struct{}

func (gobCodec[T]) Encode(v T) ([]byte, error) {
	var b bytes.Buffer
	err := gob.NewEncoder(&b).Encode(&v)
	return b.Bytes(), err
}

func (gobCodec[T]) Decode(b []byte) (v T, err error) {
	err = gob.NewDecoder(bytes.NewReader(b)).Decode(&v)
	return v, err
}

type textCodec[T ~string | ~[]byte] struct{}

func (textCodec[T]) Encode(v T) ([]byte, error) { return []byte(v), nil }

func (textCodec[T]) Decode(b []byte) (T, error) { return T(b), nil }

// encode is c.Encode with its panics contained, and its outcome bounded to most bytes.
func encode[T any](c Codec[T], v T, most int) (b []byte, err error) {
	defer recoverCodec(&b, &err)
	if b, err = c.Encode(v); err != nil {
		return nil, fmt.Errorf("%w: encode %T: %w", ErrCodec, v, err)
	}
	if len(b) > most {
		return nil, fmt.Errorf("%w: %T takes %d bytes, and at most %d are allowed", ErrTooLarge, v, len(b), most)
	}
	return b, nil
}

// decode is c.Decode with its panics contained.
func decode[T any](c Codec[T], b []byte) (v T, err error) {
	defer recoverCodec(&v, &err)
	if v, err = c.Decode(b); err != nil {
		var none T
		return none, fmt.Errorf("%w: decode %T of %d bytes: %w", ErrCodec, v, len(b), err)
	}
	return v, nil
}

// recoverCodec makes a codec's panic its error. It is deferred.
func recoverCodec[T any](result *T, err *error) {
	if p := recover(); p != nil {
		var none T
		*result, *err = none, fmt.Errorf("%w: codec panicked: %v", ErrCodec, p)
	}
}
