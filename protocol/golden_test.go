package protocol

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"flag"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

var update = flag.Bool("update", false, "rewrite the golden files of testdata")

// golden compares got with a file of testdata, or writes it with -update.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := "testdata/" + name
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		g, w := strings.Split(string(got), "\n"), strings.Split(string(want), "\n")
		for i := range min(len(g), len(w)) {
			if g[i] != w[i] {
				t.Fatalf("%s differs from line %d on (bytes on the wire are for ever; if this is a new message or field, run with -update):\n got %s\nwant %s",
					path, i+1, g[i], w[i])
			}
		}
		t.Fatalf("%s has %d lines, want %d; run with -update if this is a new message or field", path, len(g), len(w))
	}
}

// vector is one frame in bytes and in words.
type vector struct {
	Kind    string          `json:"kind"`
	Number  Kind            `json:"number"`
	ID      uint64          `json:"id"`
	Arg     uint64          `json:"arg"`
	Struct  string          `json:"struct"`
	Message json.RawMessage `json:"message"`
	Frame   string          `json:"frame"` // hex, the length included
}

// TestVectors holds the bytes of every message: a sample and the same with no field set. Authors of
// other clients test against the file.
func TestVectors(t *testing.T) {
	var out bytes.Buffer
	out.WriteString("[\n")
	list := slices.Concat(messages, extraMessages[:1], optionMessages)
	plain := len(list) - len(optionMessages)
	for i, e := range list {
		arg := uint64(4000) // a bucket
		switch {
		case e.kind.IsReply():
			arg = uint64(StatusOK)
		case e.kind.IsEvent():
			arg = 1 // a shard
		case e.kind < KindSessionStart:
			arg = 0 // the connection's own and the nodes' requests have no bucket
		}
		kind := e.kind
		if _, failure := e.sample.(*Failure); failure {
			kind, arg = KindDescribe|KindReply, uint64(StatusNotFound)
		}
		for j, m := range []Message{e.sample, e.fresh()} {
			if j == 1 && (i >= plain || reflect.DeepEqual(m, e.sample)) {
				continue // it is there already, or has no fields
			}
			id := uint64(7)
			frame := AppendFrame(nil, kind, id, arg, m)
			v := vector{kind.String(), kind, id, arg, e.typeName(), messageJSON(reflect.ValueOf(m).Elem()), hex.EncodeToString(frame)}
			line, err := json.Marshal(v)
			if err != nil {
				t.Fatal(err)
			}
			if i+j > 0 {
				out.WriteString(",\n")
			}
			out.Write(line)
		}
	}
	out.WriteString("\n]\n")
	golden(t, "vectors.json", out.Bytes())
}

// TestVectorsDecode reads the frames of the golden file, as an old peer would have sent them, back
// into the words beside them.
func TestVectorsDecode(t *testing.T) {
	raw, err := os.ReadFile("testdata/vectors.json")
	if err != nil {
		t.Fatal(err)
	}
	var vectors []vector
	if err := json.Unmarshal(raw, &vectors); err != nil {
		t.Fatal(err)
	}
	types := map[string]messageCase{}
	for _, e := range allMessages() {
		types[e.typeName()] = e
	}
	for _, v := range vectors {
		wire, err := hex.DecodeString(v.Frame)
		if err != nil {
			t.Fatal(err)
		}
		frame, n, err := SplitFrame(wire, MaxFrameLen)
		if err != nil || n != len(wire) {
			t.Fatalf("%s: took %d of %d bytes, error %v", v.Kind, n, len(wire), err)
		}
		h, err := ParseFrame(frame)
		if err != nil {
			t.Fatalf("%s: %v", v.Kind, err)
		}
		if h.Kind != v.Number || h.ID != v.ID || h.Arg != v.Arg {
			t.Errorf("%s: header is %+v", v.Kind, h)
		}
		if types[v.Struct].sample == nil {
			t.Errorf("%s: there is no message %s any more", v.Kind, v.Struct)
			continue
		}
		m := types[v.Struct].fresh()
		if err := DecodeBody(m, h.Body); err != nil {
			t.Errorf("%s: %v", v.Kind, err)
		}
		if got := messageJSON(reflect.ValueOf(m).Elem()); !bytes.Equal(got, v.Message) {
			t.Errorf("%s: decoded\n %s, want\n %s", v.Kind, got, v.Message)
		}
	}
}

// messageJSON writes a message as a JSON object: fields in order; bytes as text, or as {"hex": ...}
// when they are not printable.
func messageJSON(v reflect.Value) []byte {
	var out bytes.Buffer
	write := func(x any) {
		b, err := json.Marshal(x)
		if err != nil {
			panic(err)
		}
		out.Write(b)
	}
	switch v.Kind() {
	case reflect.Struct:
		out.WriteByte('{')
		for i := range v.NumField() {
			if v.Field(i).Kind() == reflect.Pointer && v.Field(i).IsNil() {
				continue // left out on the wire too
			}
			if i > 0 {
				out.WriteByte(',')
			}
			inner := messageJSON(v.Field(i))
			if v.Type().Field(i).Anonymous { // flat on the wire, flat here
				out.Write(inner[1 : len(inner)-1])
				continue
			}
			write(v.Type().Field(i).Name)
			out.WriteByte(':')
			out.Write(inner)
		}
		out.WriteByte('}')
	case reflect.Pointer:
		out.Write(messageJSON(v.Elem()))
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			if b := v.Bytes(); utf8.Valid(b) && !bytes.ContainsFunc(b, func(r rune) bool { return r < ' ' }) {
				write(string(b))
			} else {
				write(map[string]string{"hex": hex.EncodeToString(b)})
			}
			break
		}
		out.WriteByte('[')
		for i := range v.Len() {
			if i > 0 {
				out.WriteByte(',')
			}
			out.Write(messageJSON(v.Index(i)))
		}
		out.WriteByte(']')
	case reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		write(v.Uint()) // numbers, also of types that are errors
	default:
		write(v.Interface())
	}
	return out.Bytes()
}
