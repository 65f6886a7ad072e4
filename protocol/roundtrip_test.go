package protocol

import (
	"bytes"
	"errors"
	"reflect"
	"testing"
)

func TestRoundTrip(t *testing.T) {
	for _, e := range allMessages() {
		for name, m := range map[string]Message{"sample": e.sample, "filled": filled(e), "zero": e.fresh()} {
			body := AppendBody(nil, m)
			if err := CheckBody(body); err != nil {
				t.Errorf("%s %s: %v", e.typeName(), name, err)
				continue
			}
			got := e.fresh()
			if err := DecodeBody(got, body); err != nil {
				t.Errorf("%s %s: %v", e.typeName(), name, err)
			}
			if !reflect.DeepEqual(got, m) {
				t.Errorf("%s %s: decoded %+v, want %+v", e.typeName(), name, got, m)
			}
			// A target that held something else is overwritten in every field.
			used := filled(e)
			if err := DecodeBody(used, body); err != nil || !reflect.DeepEqual(used, m) {
				t.Errorf("%s %s into a used target: %+v, %v", e.typeName(), name, used, err)
			}
		}
	}
}

// TestTruncated: a message cut anywhere is refused by the check, and decoding it anyway neither
// panics nor reads further.
func TestTruncated(t *testing.T) {
	for _, e := range allMessages() {
		for _, m := range []Message{e.sample, filled(e)} {
			body := AppendBody(nil, m)
			frame := AppendFrame(nil, e.kind, 7, 4000, m)[lengthSize:]
			for i := range body {
				cut := body[:i:i]
				if CheckBody(cut) == nil {
					t.Errorf("%s cut to %d of %d bytes passes the check", e.typeName(), i, len(body))
				}
				_ = DecodeBody(e.fresh(), cut)
			}
			for i := range frame {
				if _, err := ParseFrame(frame[:i:i]); err == nil {
					t.Errorf("frame of %s cut to %d of %d bytes is parsed", e.typeName(), i, len(frame))
				}
			}
		}
	}
}

// split takes the fields of a body apart.
func split(t *testing.T, body []byte) (fields [][]byte) {
	t.Helper()
	c := openBody(body, "test")
	for n := c.left; n > 0; n-- {
		size, err := valueLen(c.rest, MaxDepth)
		if err != nil {
			t.Fatal(err)
		}
		fields = append(fields, c.rest[:size])
		c.rest = c.rest[size:]
	}
	return fields
}

func join(fields [][]byte) []byte {
	return append(appendArray(nil, len(fields)), bytes.Join(fields, nil)...)
}

// TestOlderPeer: a body without its last fields decodes to the same message with those at zero.
func TestOlderPeer(t *testing.T) {
	for _, e := range allMessages() {
		parts := split(t, AppendBody(nil, filled(e)))
		zero := split(t, AppendBody(nil, e.fresh()))
		for n := range parts {
			got, want := filled(e), e.fresh()
			if err := DecodeBody(got, join(parts[:n])); err != nil {
				t.Errorf("%s with %d fields: %v", e.typeName(), n, err)
			}
			if err := DecodeBody(want, join(append(parts[:n:n], zero[min(n, len(zero)):]...))); err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(got, want) {
				t.Errorf("%s with %d fields: %+v, want %+v", e.typeName(), n, got, want)
			}
		}
	}
}

// TestNewerPeer: fields that this version does not know are skipped, whatever they are.
func TestNewerPeer(t *testing.T) {
	extras := [][]byte{{0x07}, {0xc0}, {0xcb, 1, 2, 3, 4, 5, 6, 7, 8}, {0x82, 0xa1, 'a', 0x91, 0x01, 0x02, 0x80}, {0xc7, 2, 9, 1, 2}}
	for _, e := range allMessages() {
		parts := split(t, AppendBody(nil, filled(e)))
		got := e.fresh()
		body := join(append(parts, extras...))
		if err := CheckBody(body); err != nil {
			t.Fatal(err)
		}
		if err := DecodeBody(got, body); err != nil || !reflect.DeepEqual(got, filled(e)) {
			t.Errorf("%s with more fields: %+v, %v", e.typeName(), got, err)
		}
	}
	// The same inside lists and nested structs.
	full := sampleOwner
	full.Options = &OwnerOptions{Slots: []string{"gpu0"}, Priority: 7, Key: []byte("training")}
	owner := join(append(split(t, partBytes(full.fields)), extras...))
	item := join(append(split(t, partBytes((&SnapshotItem{Name: []byte("a")}).fields))[:5:5],
		append([]byte{0x92}, append(owner, owner...)...), extras[3]))
	body := append([]byte{0x94, 0x01, 0xc3, 0xc3, 0x91}, item...)
	var m Snapshot
	if err := DecodeBody(&m, body); err != nil || !reflect.DeepEqual(m.Semaphores[0].Owners, []Owner{full, full}) {
		t.Errorf("snapshot with more fields inside: %+v, %v", m, err)
	}
	create := append([]byte{0x92, 0xa2, '/', 'a'}, join(append(split(t, AppendBody(nil, &sampleNode.Config)), extras...))...)
	var node NodeCreate
	if err := DecodeBody(&node, create); err != nil || node.Config != sampleNode.Config {
		t.Errorf("node create with more fields inside: %+v, %v", node, err)
	}
}

// partBytes is a part of a message by itself.
func partBytes(part func(*fields)) []byte {
	f := encoder(nil)
	part(&f)
	return f.body()
}

// TestWrongTypes: a value of another type in any field is a bad request; nil counts as empty for
// bytes, text, lists and configs, and as nothing else.
func TestWrongTypes(t *testing.T) {
	values := map[string][]byte{
		"int": {0x07}, "big": {0xcf, 1, 0, 0, 0, 0, 0, 0, 0}, "negative": {0xff}, "negative int64": {0xd3, 0x80, 0, 0, 0, 0, 0, 0, 0}, "nil": {0xc0}, "bool": {0xc3}, "str": {0xa1, 'a'},
		"bin": {0xc4, 1, 'a'}, "NaN": {0xcb, 0x7f, 0xf8, 0, 0, 0, 0, 0, 1}, "infinity": {0xca, 0x7f, 0x80, 0, 0}, "array": {0x90}, "array of text": {0x91, 0xa1, 'a'}, "map": {0x80}, "ext": {0xd4, 1, 2},
	}
	takes := func(field reflect.Value, name string) bool {
		switch field.Kind() {
		case reflect.Uint64:
			return name == "int" || name == "big"
		case reflect.Uint8, reflect.Uint32:
			return name == "int"
		case reflect.Bool:
			return name == "bool"
		case reflect.String:
			return name == "str" || name == "bin" || name == "nil"
		case reflect.Slice:
			if field.Type().Elem().Kind() == reflect.Uint8 {
				return name == "str" || name == "bin" || name == "nil"
			}
			return name == "array" || name == "nil" || name == "array of text" && field.Type().Elem().Kind() == reflect.String
		default: // a nested struct
			return name == "array" || name == "nil"
		}
	}
	for _, e := range allMessages() {
		parts := split(t, AppendBody(nil, e.fresh()))
		for i := range parts {
			field := wireField(reflect.ValueOf(e.fresh()).Elem(), i)
			for name, value := range values {
				changed := append([][]byte(nil), parts...)
				changed[i] = value
				err := DecodeBody(e.fresh(), join(changed))
				if takes(field, name) != (err == nil) {
					t.Errorf("%s field %d as %s: error %v", e.typeName(), i, name, err)
				}
				if err != nil && !errors.Is(err, StatusBadRequest) {
					t.Errorf("%s field %d as %s: %v is not a bad request", e.typeName(), i, name, err)
				}
			}
		}
	}
}

// wireField is the i-th field on the wire, those of an embedded struct being its own.
func wireField(v reflect.Value, i int) reflect.Value {
	for j := range v.NumField() {
		if !v.Type().Field(j).Anonymous {
			if i == 0 {
				return v.Field(j)
			}
			i--
			continue
		}
		if n := v.Field(j).NumField(); i < n {
			return v.Field(j).Field(i)
		} else {
			i -= n
		}
	}
	panic("no such field")
}

// TestErrorNamesField: the message of a refused body names message and field.
func TestErrorNamesField(t *testing.T) {
	parts := split(t, benchAcquire().AppendBody(nil))
	parts[4] = []byte{0xa1, 'x'}
	err := new(Acquire).DecodeBody(join(parts))
	if want := "bad request: acquire: field count is not an unsigned integer"; err == nil || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
}

// TestScribble: nothing a decoder copied changes when the buffer is used again; byte fields do
// alias it, as documented.
func TestScribble(t *testing.T) {
	for _, e := range allMessages() {
		body := AppendBody(nil, filled(e))
		got := e.fresh()
		if err := DecodeBody(got, body); err != nil {
			t.Fatal(err)
		}
		for i := range body {
			body[i] = 0xee
		}
		want := filled(e)
		scribble(reflect.ValueOf(want).Elem())
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s changed beyond its byte fields: %+v", e.typeName(), got)
		}
	}
}

// scribble does to a message's byte fields what using its buffer again does.
func scribble(v reflect.Value) {
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			scribble(v.Field(i))
		}
	case reflect.Pointer:
		scribble(v.Elem())
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			v.SetBytes(bytes.Repeat([]byte{0xee}, v.Len()))
			return
		}
		for i := range v.Len() {
			if v.Type().Elem().Kind() == reflect.Struct {
				scribble(v.Index(i))
			}
		}
	}
}

// TestBytesDoNotGrowIntoBody: appending to a decoded byte field does not write over the body.
func TestBytesDoNotGrowIntoBody(t *testing.T) {
	body := benchAcquire().AppendBody(nil)
	before := bytes.Clone(body)
	var m Acquire
	if err := m.DecodeBody(body); err != nil {
		t.Fatal(err)
	}
	_ = append(m.Name, "more"...)
	if !bytes.Equal(body, before) {
		t.Error("append to a decoded name changed the body")
	}
}

// TestDecodeDeltaAgain: what was decoded before leaves nothing behind.
func TestDecodeDeltaAgain(t *testing.T) {
	var again Delta
	for _, want := range []Delta{
		{Node: 1, Name: []byte("a"), Index: 2, Changes: []SemaphoreChange{
			{Kind: ChangeData, Version: 4, Data: []byte("x")},
			{Kind: ChangeOwnerAdded, Owner: Owner{OrderID: 5, Session: 6, Count: 1, Data: []byte("y"), Description: "z"}},
		}},
		{Node: 3, Name: []byte("b"), Index: 4, Changes: []SemaphoreChange{{Kind: ChangeLimit, Limit: 7}}},
		{Node: 5, Name: []byte("c"), Index: 6},
		{Node: 7, Name: []byte("d"), Index: 8, Changes: []SemaphoreChange{{Kind: ChangeDeleted}, {Kind: ChangeCreated, Ephemeral: true}}},
	} {
		body := AppendBody(nil, &want)
		var fresh Delta
		if err := DecodeBody(&fresh, body); err != nil {
			t.Fatal(err)
		}
		if err := again.DecodeBodyAgain(body); err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(again, fresh) {
			t.Errorf("decoded again %+v, decoded %+v", again, fresh)
		}
	}
}
