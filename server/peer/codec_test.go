package peer

import (
	"bytes"
	"testing"

	"github.com/signalbox-dev/signalbox/protocol"
)

type oldBody struct {
	Name string
	List []uint64
}

type newBody struct {
	Name string
	List []uint64
	More map[string][]byte
}

func TestBodies(t *testing.T) {
	want := newBody{"name", []uint64{1, 1 << 60}, map[string][]byte{"k": []byte("v")}}
	b, err := Encode(want)
	if err != nil {
		t.Fatal(err)
	}
	var got newBody
	if err := Decode(b, &got); err != nil || got.Name != want.Name || got.List[1] != 1<<60 || string(got.More["k"]) != "v" {
		t.Errorf("got %+v, %v", got, err)
	}
	var old oldBody // knows less
	if err := Decode(b, &old); err != nil || old.Name != "name" || len(old.List) != 2 {
		t.Errorf("an older instance reads %+v, %v", old, err)
	}
	b, err = Encode(&oldBody{"older", nil})
	if err != nil {
		t.Fatal(err)
	}
	got = newBody{}
	if err := Decode(b, &got); err != nil || got.Name != "older" || got.More != nil {
		t.Errorf("a newer instance reads %+v, %v", got, err)
	}
	for _, bad := range [][]byte{nil, {0xc0}, {0x92, 0xa1}, {0xdd, 0xff, 0xff, 0xff, 0xff},
		bytes.Repeat([]byte{0x91}, 1<<20), {0x91, 0x01}, {0x81, 0xa1, 'x', 1}} {
		if err := Decode(bad, &got); protocol.StatusOf(err) != protocol.StatusBadRequest {
			t.Errorf("%x: %v", bad[:min(len(bad), 10)], err)
		}
	}
}
