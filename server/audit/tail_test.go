package audit

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func titles(t *testing.T, lines []string) string {
	t.Helper()
	var list []string
	for _, l := range lines {
		var e struct{ Title string }
		if err := json.Unmarshal([]byte(l), &e); err != nil {
			t.Fatalf("%s: %v", l, err)
		}
		list = append(list, e.Title)
	}
	return strings.Join(list, " ")
}

// TestTail: the last lines in their order, of a file of any length, without what is no line.
func TestTail(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	l := open(t, Config{Destination: path})
	for i := range 5 {
		l.Write(Event{Title: fmt.Sprint("e", i)})
	}
	if err := l.Reopen(); err != nil { // all is written
		t.Fatal(err)
	}
	for most, want := range map[int]string{1: "e4", 3: "e2 e3 e4", 5: "e0 e1 e2 e3 e4", 100: "e0 e1 e2 e3 e4"} {
		if lines, err := l.Tail(most); err != nil || titles(t, lines) != want {
			t.Errorf("the last %d are %q, %v", most, titles(t, lines), err)
		}
	}
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	long := `{"title":"` + strings.Repeat("x", tailBytes) + "\"}\n"
	for _, text := range []string{long, "\n", "no line\n", `{"title":"torn`, "\n", `{"title":"last"}`} {
		if _, err := f.WriteString(text); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if lines, err := l.Tail(100); err != nil || titles(t, lines) != "last" {
		t.Errorf("the end of a long file is %q, %v", titles(t, lines), err)
	}
	if err := os.Truncate(path, 0); err != nil {
		t.Fatal(err)
	}
	if lines, err := l.Tail(100); err != nil || len(lines) != 0 {
		t.Errorf("an empty file has %q, %v", titles(t, lines), err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestTailOfNoFile(t *testing.T) {
	var off *Log
	if _, err := off.Tail(1); !errors.Is(err, ErrOff) {
		t.Errorf("a log that is off: %v", err)
	}
	for _, destination := range []string{Stderr, os.DevNull} {
		l := open(t, Config{Destination: destination, stderr: new(strings.Builder)})
		if _, err := l.Tail(1); !errors.Is(err, ErrNoFile) {
			t.Errorf("%s: %v", destination, err)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
