package varint

import (
	"bytes"
	"math"
	"testing"
)

func TestRoundTrip(t *testing.T) {
	b := Append(nil, 0, 127, 128, math.MaxUint64)
	b = AppendBytes(b, "name")
	b = AppendBytes(b, []byte{})
	b = AppendBool(AppendBool(b, true), false)
	b = append(Append(b, 7, 2), 'x', 'y', 9)

	r := Reader{Rest: b}
	var n [4]uint64
	r.Uints(&n[0], &n[1], &n[2], &n[3])
	if n != [4]uint64{0, 127, 128, math.MaxUint64} {
		t.Errorf("numbers %v", n)
	}
	if name, empty := r.Bytes(4), r.Copy(4); string(name) != "name" || empty != nil {
		t.Errorf("byte strings %q, %v", name, empty)
	}
	if !r.Bool() || r.Bool() {
		t.Error("flags")
	}
	var fixed [2]byte
	if seven, count := r.Uint32(), r.Count(10); seven != 7 || count != 2 {
		t.Errorf("%d, %d elements", seven, count)
	}
	if r.Fixed(fixed[:]); string(fixed[:]) != "xy" || r.Byte() != 9 || !r.Done() {
		t.Errorf("%q, %v left", fixed, r.Rest)
	}
}

func TestDamage(t *testing.T) {
	for name, read := range map[string]struct {
		in   []byte
		read func(*Reader)
	}{
		"number that is missing":     {nil, func(r *Reader) { r.Uint() }},
		"number that is cut short":   {[]byte{0x80}, func(r *Reader) { r.Uint() }},
		"number that is too long":    {bytes.Repeat([]byte{0xff}, 11), func(r *Reader) { r.Uint() }},
		"number above 32 bits":       {Append(nil, 1<<32), func(r *Reader) { r.Uint32() }},
		"byte that is missing":       {nil, func(r *Reader) { r.Byte() }},
		"flag that is neither":       {[]byte{2}, func(r *Reader) { r.Bool() }},
		"string that is missing":     {[]byte{3, 'a'}, func(r *Reader) { r.Bytes(10) }},
		"string above its bound":     {[]byte{2, 'a', 'b'}, func(r *Reader) { r.Bytes(1) }},
		"list longer than the input": {[]byte{5, 1, 1}, func(r *Reader) { r.Count(10) }},
		"field that is cut short":    {[]byte{1}, func(r *Reader) { r.Fixed(make([]byte, 2)) }},
	} {
		r := Reader{Rest: read.in}
		if read.read(&r); !r.Failed || r.Done() || len(r.Rest) > 0 || r.Uint() != 0 || r.Bytes(9) != nil && len(r.Bytes(9)) > 0 {
			t.Errorf("%s: not noticed, or something is read behind it", name)
		}
	}
}

func BenchmarkUint(b *testing.B) {
	in := bytes.Repeat(Append(nil, 5, 300, 1, 1<<40), 16)
	for b.Loop() {
		r := Reader{Rest: in}
		for !r.Done() {
			r.Uint()
		}
	}
}

func BenchmarkAppend(b *testing.B) {
	var buf []byte
	for b.Loop() {
		buf = Append(buf[:0], 5, 300, 1, 1<<40)
	}
}
