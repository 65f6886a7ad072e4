package cluster

import (
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/signalbox-dev/signalbox/server/peer"
)

// TestKeptMessages reads what instances of the releases send each other: fields go by their names,
// and none is gone or has another type. Numbers of methods stay.
func TestKeptMessages(t *testing.T) {
	files, err := filepath.Glob("../testdata/releases/*/peer.golden")
	if err != nil {
		t.Fatal(err)
	}
	if len(files) == 0 {
		t.Skip("no release is kept yet")
	}
	present, err := os.ReadFile(fmt.Sprintf("testdata/format-%d.golden", peer.HandshakeVersion))
	if err != nil {
		t.Fatal(err)
	}
	is := goldenLines(string(present))
	for _, file := range files {
		kept, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for name, was := range goldenLines(string(kept)) {
			if len(was) < 4 { // the number of a method or a kind
				if is[name] != was {
					t.Errorf("%s: %s is %q, and was %s; numbers stay", file, name, is[name], was)
				}
				continue
			}
			m := messageNamed(name)
			if m == nil {
				t.Errorf("%s: there is no message %s any more; instances of the release send it", file, name)
				continue
			}
			if err := rereads(m, was); err != "" {
				t.Errorf("%s: %s %s", file, name, err)
			}
		}
	}
}

func goldenLines(text string) map[string]string {
	lines := map[string]string{}
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
		lines[name] = value
	}
	return lines
}

// rereads says what is lost of a message of a release, in hexadecimal, that this tree reads and
// writes again.
func rereads(m any, text string) string {
	b, err := hex.DecodeString(text)
	if err != nil {
		return err.Error()
	}
	var was, is any
	if err := decode(b, m); err != nil {
		return "is not read: " + err.Error()
	}
	if err := peer.Decode(b, &was); err != nil {
		return err.Error()
	}
	if err := peer.Decode(encode(m), &is); err != nil {
		return err.Error()
	}
	if !has(is, was) {
		return "is not written as it was read; fields are added, and never change or go"
	}
	return ""
}

// has reports whether a message has all fields of another one, with their values.
func has(is, was any) bool {
	switch was := was.(type) {
	case map[string]any:
		is, ok := is.(map[string]any)
		for key, x := range was {
			ok = ok && has(is[key], x)
		}
		return ok
	case []any:
		is, ok := is.([]any)
		if ok = ok && len(is) == len(was); ok {
			for i, x := range was {
				ok = ok && has(is[i], x)
			}
		}
		return ok
	}
	return reflect.DeepEqual(is, was)
}

// TestChangedMessages: a field that is renamed, gone or of another type is found, and one that is
// added is none.
func TestChangedMessages(t *testing.T) {
	type was struct{ Name, Address string }
	b, err := peer.Encode(&was{"a", "b"})
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range []struct {
		m  any
		ok bool
	}{
		{&struct {
			Address, Name string
			More          uint64
		}{}, true},
		{&struct{ Name, Addr string }{}, false},
		{&struct{ Name string }{}, false},
		{&struct {
			Name    string
			Address uint64
		}{}, false},
	} {
		if problem := rereads(x.m, hex.EncodeToString(b)); (problem == "") != x.ok {
			t.Errorf("%T: %q", x.m, problem)
		}
	}
}
