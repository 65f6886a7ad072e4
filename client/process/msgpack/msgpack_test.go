package msgpack

import (
	"testing"
	"testing/quick"
)

type newer struct {
	Text  string
	Times int64
	More  []byte
}

type older struct{ Text string }

// TestCodec: what is encoded is decoded; fields that are not known are passed over; rubbish, and
// what stands behind a value, is an error.
func TestCodec(t *testing.T) {
	if err := quick.Check(func(v newer) bool {
		b, err := Codec[newer]().Encode(v)
		if err != nil {
			t.Fatal(err)
		}
		same, err := Codec[newer]().Decode(b)
		if err != nil || same.Text != v.Text || same.Times != v.Times || string(same.More) != string(v.More) {
			return false
		}
		old, err := Codec[older]().Decode(b)
		return err == nil && old.Text == v.Text
	}, nil); err != nil {
		t.Error(err)
	}
	for _, b := range [][]byte{nil, {0xc1}, {0x01}, {0x80, 0x00}} {
		if v, err := Codec[newer]().Decode(b); err == nil {
			t.Errorf("%x gives %+v", b, v)
		}
	}
}
