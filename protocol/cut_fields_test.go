package protocol

import (
	"bytes"
	"testing"
)

// TestCutFields compares with what a peer writes that does not know the last fields.
func TestCutFields(t *testing.T) {
	head := Head{Session: 7, Seq: 1, Low: 1}
	plain := &Create{Head: head, Name: []byte("jobs"), Limit: 3, Data: []byte("x")}
	more := &Create{Head: head, Name: []byte("jobs"), Limit: 3, Data: []byte("x"), Options: &SemaphoreOptions{History: 4}}
	old := AppendBody(nil, plain)
	fields := int(old[0] & 0x0f)
	for _, x := range []struct {
		text  string
		body  []byte
		path  []int
		want  []byte
		found bool
	}{
		{"nothing to cut", old, []int{fields}, old, false},
		{"a field", AppendBody(nil, more), []int{fields}, old, true},
		{"fields of a part", AppendBody(nil, more), []int{fields, 1}, append(append([]byte{old[0] + 1}, old[1:]...), 0x91, 0x00), true},
		{"a part that is not there", old, []int{fields, 1}, old, false},
		{"a part that is none", old, []int{0, 1}, old, false},
		{"a long body", append([]byte{0xdc, 0, 17}, make([]byte, 17)...), []int{16}, append([]byte{0xdc, 0, 16}, make([]byte, 16)...), true},
		{"no path", old, nil, old, false},
		{"a body that is cut short", AppendBody(nil, more)[:9], []int{fields}, AppendBody(nil, more)[:9], false},
		{"no body", nil, []int{1}, nil, false},
	} {
		cut, found := CutFields(x.body, x.path...)
		if found != x.found || !bytes.Equal(cut, x.want) {
			t.Errorf("%s: %x %v, want %x %v", x.text, cut, found, x.want, x.found)
		}
	}
}
