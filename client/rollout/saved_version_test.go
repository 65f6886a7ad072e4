package rollout

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/signalbox-dev/signalbox/protocol"
)

func TestSavedVersion(t *testing.T) {
	dir := t.TempDir()
	if k, err := loadSavedVersion(dir); k != nil || err != nil {
		t.Fatalf("an empty folder has %+v, %v", k, err)
	}
	for _, k := range []savedVersion{
		{id: "a", version: 1}, {id: strings.Repeat("x", 60_000), version: 1<<63 - 1, hasPayload: true, payload: bytes.Repeat([]byte{7}, 64<<10)},
		{id: "b", version: 2, hasPayload: true},
	} {
		if err := k.save(dir); err != nil {
			t.Fatal(err)
		}
		got, err := loadSavedVersion(dir)
		if err != nil || got.id != k.id || got.version != k.version || got.hasPayload != k.hasPayload ||
			!bytes.Equal(got.payload, k.payload) {
			t.Fatalf("%.80v became %.80v, %v", k, got, err)
		}
	}
	list, err := os.ReadDir(dir)
	if err != nil || len(list) != 1 {
		t.Errorf("the folder has %v, %v", list, err)
	}
	whole, err := os.ReadFile(filepath.Join(dir, savedFile))
	if err != nil {
		t.Fatal(err)
	}
	for i := range whole {
		for what, b := range map[string][]byte{"cut": whole[:i],
			"changed": append(append(bytes.Clone(whole[:i]), whole[i]^1), whole[i+1:]...)} {
			if err := os.WriteFile(filepath.Join(dir, savedFile), b, 0o600); err != nil {
				t.Fatal(err)
			}
			if k, err := loadSavedVersion(dir); err == nil || !strings.Contains(err.Error(), "damaged") {
				t.Errorf("%s at %d: %+v, %v", what, i, k, err)
			}
		}
	}
	if err := (&savedVersion{}).save(filepath.Join(dir, "nowhere")); err == nil {
		t.Error("saved into no folder")
	}
}

func TestCodes(t *testing.T) {
	plain := errors.New("plain")
	for _, c := range []struct {
		err  error
		want string
	}{
		{nil, CodeOK}, {plain, CodeSourceError}, {Code("TimestampOutOfRange", plain), "TimestampOutOfRange"},
		{fmt.Errorf("more: %w", Code("EXIT_3", plain)), "EXIT_3"}, {Code("", plain), CodeSourceError}, {Code(CodeOK, plain), CodeSourceError},
		{Code("a\nb", plain), "a b"}, {Code(strings.Repeat("x", 300), plain), strings.Repeat("x", protocol.MaxTrackName)},
	} {
		if got := codeOf(c.err); got != c.want {
			t.Errorf("%v has the code %q, want %q", c.err, got, c.want)
		}
	}
	if Code("X", nil) != nil {
		t.Error("no error has a code")
	}
	if err := Code("X", plain); !errors.Is(err, plain) || err.Error() != "plain" {
		t.Errorf("%v", err)
	}
}

// FuzzPrintable: whatever a program's error says, it can be reported.
func FuzzPrintable(f *testing.F) {
	f.Add("plain", 10)
	f.Add("\xff\x00\x1b[31m\x7f✋✋✋✋", 7)
	f.Fuzz(func(t *testing.T, text string, most int) {
		most = max(0, min(most, protocol.MaxTrackMessage))
		got := printable(text, most)
		if len(got) > most || !utf8.ValidString(got) || strings.ContainsFunc(got, func(r rune) bool { return r < ' ' || r == 0x7f }) {
			t.Errorf("%q became %q, with at most %d bytes", text, got, most)
		}
	})
}

func TestRefusals(t *testing.T) {
	for r, want := range refusals {
		err := asRefusal(fmt.Errorf("about it: %w", protocol.Refuse(r, "so it is")))
		if !errors.Is(err, want) || !errors.Is(err, r.Status()) {
			t.Errorf("%v became %v", r, err)
		}
		if err := asRefusal(protocol.Errorf(r.Status(), "%v: so it is", r)); errors.Is(err, want) {
			t.Errorf("%v by its status and text alone", err)
		}
	}
	if asRefusal(nil) != nil {
		t.Error("no error is one")
	}
}

// TestSavedVersionIsARegularFile: what is no regular file is neither replaced nor read without an
// end.
func TestSavedVersionIsARegularFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, savedFile)
	if err := os.Symlink("/dev/zero", path); err != nil {
		t.Fatal(err)
	}
	if _, err := loadSavedVersion(dir); err == nil || !strings.Contains(err.Error(), "damaged") {
		t.Errorf("read: %v", err)
	}
	if err := (&savedVersion{id: "a", version: 1}).save(dir); err == nil || !strings.Contains(err.Error(), "not a regular file") {
		t.Errorf("replaced: %v", err)
	}
	if fi, err := os.Lstat(path); err != nil || fi.Mode()&os.ModeSymlink == 0 {
		t.Errorf("it is another file now: %v, %v", fi, err)
	}
}
