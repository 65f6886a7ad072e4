package protocol

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"github.com/vmihailenco/msgpack/v5"
	"pgregory.net/rapid"

	"github.com/signalbox-dev/signalbox/server/servertest/form"
)

// TestHostileStructure: what promises more than it brings is refused at once and costs no memory.
func TestHostileStructure(t *testing.T) {
	flood := func(prefix string) []byte { return bytes.Repeat([]byte(prefix), 5<<20/len(prefix)) }
	nested := func(depth int) []byte { return append(bytes.Repeat([]byte{0x91}, depth-1), 0x90) }
	cases := []struct {
		name string
		body []byte
		want error // nil: accepted
	}{
		{"empty", nil, errTruncated},
		{"no array", []byte{0x07}, errNotArray},
		{"map", []byte{0x80}, errNotArray},
		{"nil", []byte{0xc0}, errNotArray},
		{"no fields", []byte{0x90}, nil},
		{"bin32 of 4 GB", []byte{0x91, 0xc6, 0xff, 0xff, 0xff, 0xff}, errTruncated},
		{"str32 of 4 GB", []byte{0x91, 0xdb, 0xff, 0xff, 0xff, 0xff}, errTruncated},
		{"ext32 of 4 GB", []byte{0x91, 0xc9, 0xff, 0xff, 0xff, 0xff}, errTruncated},
		{"ext32 of 4 GB and its type", []byte{0x91, 0xc9, 0xff, 0xff, 0xff, 0xff, 0x01}, errTruncated},
		{"array32 of 4 G", []byte{0xdd, 0xff, 0xff, 0xff, 0xff}, errTruncated},
		{"map32 of 4 G", []byte{0x91, 0xdf, 0xff, 0xff, 0xff, 0xff}, errTruncated},
		{"array32 of one more than there is", []byte{0xdd, 0, 0, 0, 3, 1, 2}, errTruncated},
		{"map16 that needs twice its count", []byte{0x91, 0xde, 0, 2, 1, 1, 1}, errTruncated},
		{"reserved byte", []byte{0x91, 0xc1}, errReserved},
		{"trailing byte", []byte{0x90, 0x00}, errTrailing},
		{"5 MB of arrays", flood("\x91"), errTooDeep},
		{"5 MB of maps", flood("\x81\xa1a"), errNotArray},
		{"5 MB of maps as a field", append([]byte{0x91}, flood("\x81\xa1a")...), errTooDeep},
		{"array as a map's key", []byte{0x91, 0x81, 0x90, 0xc0}, nil},
		{"as deep as a body may be", nested(MaxDepth - 1), nil},
		{"one deeper", nested(MaxDepth), errTooDeep},
		{"length of bin8 missing", []byte{0x91, 0xc4}, errTruncated},
		{"length of bin32 cut", []byte{0x91, 0xc6, 0x00}, errTruncated},
		{"float64 cut", []byte{0x91, 0xcb, 0, 0, 0}, errTruncated},
		{"unknown kinds of values", []byte{0x95, 0xca, 0, 0, 0, 0, 0xd4, 1, 2, 0xc7, 1, 9, 9, 0x81, 1, 2, 0xd0, 0x80}, nil},
	}
	for _, c := range cases {
		if err := CheckBody(c.body); !errors.Is(err, c.want) && err != c.want {
			t.Errorf("%s: error %v, want %v", c.name, err, c.want)
		}
		frame := append([]byte{0x94, 1, 0, 0}, c.body...)
		if _, err := ParseFrame(frame); (err == nil) != (c.want == nil) {
			t.Errorf("%s in a frame: error %v, want %v", c.name, err, c.want)
		}
		if n := testing.AllocsPerRun(5, func() { _ = CheckBody(c.body) }); n != 0 && !form.Race {
			t.Errorf("%s: the check allocates %v times", c.name, n)
		}
	}
}

// TestStructureAgainstOracle: the walk ends where another msgpack library says that the value ends,
// for every first byte and for generated values.
func TestStructureAgainstOracle(t *testing.T) {
	end := func(b []byte) (int, error) {
		r := bytes.NewReader(b)
		err := msgpack.NewDecoder(r).Skip()
		return len(b) - r.Len(), err
	}
	for first := range 256 {
		// 0x00 is a value of one byte and a length of zero, 0x01 a length of one: both go on
		// harmlessly.
		for _, filler := range []byte{0, 1} {
			b := append([]byte{byte(first)}, bytes.Repeat([]byte{filler}, 1<<17)...)
			if first >= fixMap && first < fixArray || first >= map16 && first < negFixInt {
				continue // the oracle wants keys to be strings; generated maps are below
			}
			if filler == 1 && (first == bin32 || first == str32 || first == ext8+2 || first == array32) {
				continue // 16 M
			}
			want, werr := end(b)
			got, gerr := valueLen(b, MaxDepth)
			if (gerr == nil) != (werr == nil) || werr == nil && got != want {
				t.Errorf("first byte %#x, then %d: %d, %v; the oracle says %d, %v", first, filler, got, gerr, want, werr)
			}
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		b, err := msgpack.Marshal(anyValue(t, 4))
		if err != nil {
			t.Fatal(err)
		}
		if got, err := valueLen(append(b, 0xc1), MaxDepth); err != nil || got != len(b) {
			t.Fatalf("% x: %d, %v", b, got, err)
		}
		for i := range b {
			if n, err := valueLen(b[:i], MaxDepth); err == nil {
				t.Fatalf("% x cut to %d bytes is taken for a value of %d", b, i, n)
			}
		}
	})
}

// anyValue draws a msgpack value of any type.
func anyValue(t *rapid.T, depth int) any {
	kinds := 8
	if depth > 0 {
		kinds = 10
	}
	switch rapid.IntRange(0, kinds-1).Draw(t, "type") {
	case 0:
		return nil
	case 1:
		return rapid.Bool().Draw(t, "bool")
	case 2:
		return rapid.Int64().Draw(t, "int")
	case 3:
		return rapid.Uint64().Draw(t, "uint")
	case 4:
		return rapid.Float64().Draw(t, "float64")
	case 5:
		return rapid.Float32().Draw(t, "float32")
	case 6:
		return rapid.String().Draw(t, "str")
	case 7:
		return rapid.SliceOfN(rapid.Byte(), 0, 300).Draw(t, "bin")
	case 8:
		list := make([]any, rapid.IntRange(0, 20).Draw(t, "count"))
		for i := range list {
			list[i] = anyValue(t, depth-1)
		}
		return list
	default:
		m := map[string]any{}
		for i := range rapid.IntRange(0, 20).Draw(t, "count") {
			m[fmt.Sprint(i)] = anyValue(t, depth-1)
		}
		return m
	}
}
