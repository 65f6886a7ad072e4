package protocol

import (
	"bytes"
	"encoding/binary"
	"errors"
	"testing"
)

func TestSplitFrame(t *testing.T) {
	length := func(n uint32, rest int) []byte {
		return append(binary.BigEndian.AppendUint32(nil, n), make([]byte, rest)...)
	}
	cases := []struct {
		name string
		buf  []byte
		n    int
		bad  bool
	}{
		{"nothing", nil, 0, false},
		{"half a length", []byte{0, 0, 0}, 0, false},
		{"length alone", length(5, 0), 0, false},
		{"one byte short", length(5, 4), 0, false},
		{"whole", length(5, 5), 9, false},
		{"whole and more", length(5, 50), 9, false},
		{"largest", length(100, 100), 104, false},
		{"too long, nothing behind", length(101, 0), 0, true},
		{"too long, all there", length(101, 101), 0, true},
		{"zero", length(0, 10), 0, true},
		{"2^31-1", length(1<<31-1, 10), 0, true},
		{"2^31", length(1<<31, 10), 0, true},
		{"2^32-1", length(1<<32-1, 10), 0, true},
		{"an HTTP request", []byte("GET / HTTP/1.1\r\n\r\n"), 0, true},
		{"a TLS client hello", []byte{0x16, 0x03, 0x01, 0x02, 0x00, 0x01}, 0, true},
		{"an SSH banner", []byte("SSH-2.0-OpenSSH_9.6\r\n"), 0, true},
	}
	for _, c := range cases {
		frame, n, err := SplitFrame(c.buf, 100)
		if n != c.n || (err != nil) != c.bad {
			t.Errorf("%s: took %d, error %v", c.name, n, err)
		}
		if n > 0 && (len(frame) != n-lengthSize || cap(frame) != len(frame)) {
			t.Errorf("%s: frame of %d bytes with capacity %d", c.name, len(frame), cap(frame))
		}
		if c.bad && !errors.Is(err, StatusBadRequest) {
			t.Errorf("%s: error %v is not a bad request", c.name, err)
		}
	}
}

func TestParseFrameRefuses(t *testing.T) {
	cases := map[string][]byte{
		"nothing":            {},
		"no array":           {0x01},
		"empty array":        {0x90},
		"three values":       {0x93, 1, 2, 3},
		"five values":        {0x95, 1, 2, 3, 0x90, 0x90},
		"map":                {0x84, 1, 2, 3, 0x90},
		"count of 4 G":       {0xdd, 0xff, 0xff, 0xff, 0xff},
		"kind of 17 bits":    {0x94, 0xce, 0, 1, 0, 0, 2, 3, 0x90},
		"negative kind":      {0x94, 0xff, 2, 3, 0x90},
		"negative id":        {0x94, 1, 0xd3, 0xff, 0, 0, 0, 0, 0, 0, 0, 3, 0x90},
		"float id":           {0x94, 1, 0xca, 0, 0, 0, 0, 3, 0x90},
		"string arg":         {0x94, 1, 2, 0xa1, 'a', 0x90},
		"nil kind":           {0x94, 0xc0, 2, 3, 0x90},
		"no body":            {0x94, 1, 2, 3},
		"body is a number":   {0x94, 1, 2, 3, 4},
		"body is nil":        {0x94, 1, 2, 3, 0xc0},
		"bytes behind":       {0x94, 1, 2, 3, 0x90, 0x00},
		"kind cut short":     {0x94, 0xcd, 1},
		"body is cut short":  {0x94, 1, 2, 3, 0x92, 1},
		"array head cut off": {0xdc, 0},
	}
	for name, frame := range cases {
		if h, err := ParseFrame(frame); !errors.Is(err, StatusBadRequest) {
			t.Errorf("%s: %+v, error %v; want a bad request", name, h, err)
		}
	}
}

// TestParseFrameTakesAnyWidth: writers in other languages may write integers and array heads wider
// than needed, and signed.
func TestParseFrameTakesAnyWidth(t *testing.T) {
	for name, frame := range map[string][]byte{
		"narrow":   {0x94, 34, 7, 3, 0x90},
		"uint 8":   {0x94, 0xcc, 34, 0xcc, 7, 0xcc, 3, 0x90},
		"uint 16":  {0x94, 0xcd, 0, 34, 0xcd, 0, 7, 0xcd, 0, 3, 0x90},
		"uint 32":  {0x94, 0xce, 0, 0, 0, 34, 0xce, 0, 0, 0, 7, 0xce, 0, 0, 0, 3, 0x90},
		"uint 64":  {0x94, 0xcf, 0, 0, 0, 0, 0, 0, 0, 34, 0xcf, 0, 0, 0, 0, 0, 0, 0, 7, 3, 0x90},
		"int 8":    {0x94, 0xd0, 34, 0xd0, 7, 0xd0, 3, 0x90},
		"int 64":   {0x94, 0xd3, 0, 0, 0, 0, 0, 0, 0, 34, 7, 3, 0x90},
		"array 16": {0xdc, 0, 4, 34, 7, 3, 0x90},
		"array 32": {0xdd, 0, 0, 0, 4, 34, 7, 3, 0xdd, 0, 0, 0, 0},
	} {
		h, err := ParseFrame(frame)
		if err != nil || h.Kind != 34 || h.ID != 7 || h.Arg != 3 {
			t.Errorf("%s: %+v, %v", name, h, err)
		}
	}
}

// TestUnknownKind is parsed, so that it can be answered instead of closing the connection.
func TestUnknownKind(t *testing.T) {
	for _, kind := range []Kind{0, 5, 54, 60, 97, 110, 0x7f, 0xff, 0xffff} {
		frame := AppendFrame(nil, kind, 7, 3, nil)
		h, err := ParseFrame(frame[lengthSize:])
		if err != nil || h.Kind != kind {
			t.Errorf("kind %d: %+v, %v", kind, h, err)
		}
		if kind.IsRequest() || kind.IsEvent() {
			t.Errorf("kind %d counts as known", kind)
		}
	}
}

func TestAppendFrameForms(t *testing.T) {
	m := benchAcquire()
	prefix := []byte("before")
	want := AppendFrame(append([]byte(nil), prefix...), KindAcquire, 1<<40, Forever, m)
	raw := AppendFrameRaw(append([]byte(nil), prefix...), KindAcquire, 1<<40, Forever, AppendBody(nil, m))
	if !bytes.Equal(want, raw) {
		t.Errorf("raw frame % x, want % x", raw, want)
	}
	if got := binary.BigEndian.Uint32(want[len(prefix):]); int(got) != len(want)-len(prefix)-lengthSize {
		t.Errorf("length is %d in a frame of %d bytes", got, len(want)-len(prefix))
	}
}

// TestLargestMessageFits: a request at the limits of the specification fits in a frame, a hello in
// its own smaller one.
func TestLargestMessageFits(t *testing.T) {
	head := Head{Session: Forever, Seq: Forever, Low: Forever}
	name, data := make([]byte, MaxNameLen), make([]byte, MaxDataLen)
	for _, m := range []Message{
		&Acquire{Head: head, Name: name, Count: Forever, Timeout: Forever, Data: data, Ephemeral: true},
		&Create{Head: head, Name: name, Limit: Forever, Data: data},
		&Update{Head: head, Name: name, Data: data, Expected: Forever},
		&DescribeReply{Name: name, Data: data, Owners: make([]Owner, 1)},
		&DescribeReply{Name: name, Owners: []Owner{{Data: data, Description: string(make([]byte, MaxDescriptionLen))}}},
		&Delta{Name: name, Changes: []SemaphoreChange{{Kind: ChangeData, Data: data}}},
	} {
		frame := AppendFrame(nil, KindAcquire, Forever, Forever, m)
		if _, n, err := SplitFrame(frame, MaxFrameLen); err != nil || n != len(frame) {
			t.Errorf("%T of %d bytes: took %d, %v", m, len(frame), n, err)
		}
	}
}
