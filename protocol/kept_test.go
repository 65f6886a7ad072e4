package protocol

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"testing"
)

// TestKeptVectors reads the frames of the releases as their peers meant them: what a field was it
// is, and those that came later, behind it, are zero.
func TestKeptVectors(t *testing.T) {
	files, err := filepath.Glob("../server/testdata/releases/*/vectors.json")
	if err != nil {
		t.Fatal(err)
	}
	if len(files) == 0 {
		t.Skip("no release is kept yet")
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var vectors []vector
		if err := json.Unmarshal(text, &vectors); err != nil || len(vectors) == 0 {
			t.Fatalf("%s has %d vectors: %v", file, len(vectors), err)
		}
		for _, v := range vectors {
			if err := v.readByThisTree(); err != nil {
				t.Errorf("%s: %s: %v", file, v.Kind, err)
			}
		}
	}
}

// readByThisTree reads the frame of a release's vector.
func (v *vector) readByThisTree() error {
	wire, err := hex.DecodeString(v.Frame)
	if err != nil {
		return err
	}
	frame, n, err := SplitFrame(wire, MaxFrameLen)
	if err != nil || n != len(wire) {
		return fmt.Errorf("took %d of %d bytes: %w", n, len(wire), err)
	}
	h, err := ParseFrame(frame)
	if err != nil {
		return err
	}
	if h.Kind != v.Number || h.ID != v.ID || h.Arg != v.Arg || h.Kind.String() != v.Kind {
		return fmt.Errorf("its header is %+v", h)
	}
	var m Message
	for _, e := range allMessages() {
		if e.kind == h.Kind && (!h.Kind.IsReply() || Status(h.Arg) == StatusOK) {
			m = e.fresh()
			break
		}
	}
	if m == nil {
		m = &Failure{}
	}
	if err := DecodeBody(m, h.Body); err != nil {
		return err
	}
	got := messageJSON(reflect.ValueOf(m).Elem())
	if !grown(inOrder(got), inOrder(v.Message)) {
		return fmt.Errorf("it is read as\n %s, want\n %s\nFields are added at the end, and never change or go",
			got, v.Message)
	}
	return nil
}

// fieldsInOrder is a JSON object without its keys: names of fields are not on the wire.
type fieldsInOrder []any

func inOrder(text []byte) any {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var read func() any
	read = func() any {
		token, err := d.Token()
		if err != nil {
			panic(err)
		}
		switch token {
		case json.Delim('{'):
			fields := fieldsInOrder{}
			for d.More() {
				read()
				fields = append(fields, read())
			}
			_, _ = d.Token()
			return fields
		case json.Delim('['):
			items := []any{}
			for d.More() {
				items = append(items, read())
			}
			_, _ = d.Token()
			return items
		}
		return token
	}
	return read()
}

// grown reports whether a message is unchanged but for zero fields behind the former ones.
func grown(is, was any) bool {
	switch was := was.(type) {
	case fieldsInOrder:
		is, ok := is.(fieldsInOrder)
		if !ok || len(is) < len(was) {
			return false
		}
		for i, x := range is {
			if i < len(was) && !grown(x, was[i]) || i >= len(was) && !zero(x) {
				return false
			}
		}
		return true
	case []any:
		is, ok := is.([]any)
		if !ok || len(is) != len(was) {
			return false
		}
		for i, x := range is {
			if !grown(x, was[i]) {
				return false
			}
		}
		return true
	}
	return is == was
}

func zero(x any) bool {
	switch x := x.(type) {
	case fieldsInOrder:
		for _, y := range x {
			if !zero(y) {
				return false
			}
		}
		return true
	case []any:
		return len(x) == 0
	}
	return x == "" || x == json.Number("0") || x == false || x == nil
}

// TestGrownMessages: fields may be added at the end, of parts of a message too. One in the midst,
// or one that is gone, is found.
func TestGrownMessages(t *testing.T) {
	const was = `{"A":1,"B":[{"C":"x"}]}`
	for is, ok := range map[string]bool{
		was:                                   true,
		`{"Z":1,"B":[{"C":"x"}]}`:             true,
		`{"A":1,"B":[{"C":"x"}],"D":0}`:       true,
		`{"A":1,"B":[{"C":"x","D":false}]}`:   true,
		`{"A":1,"D":0,"B":[{"C":"x"}]}`:       false,
		`{"A":1,"B":[{"D":"","C":"x"}]}`:      false,
		`{"A":1}`:                             false,
		`{"A":1,"B":[]}`:                      false,
		`{"A":2,"B":[{"C":"x"}]}`:             false,
		`{"A":1,"B":[{"C":"x"}],"D":1}`:       false,
		`{"A":1,"B":[{"C":"x"}],"D":{"E":1}}`: false,
	} {
		if grown(inOrder([]byte(is)), inOrder([]byte(was))) != ok {
			t.Errorf("%s after %s: not %t", is, was, ok)
		}
	}
}
