package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestWrittenFile: a file is written when its content is another one or when it is gone, at most
// once a second; not so soon when another program changes it; and errors are reported once.
func TestWrittenFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "folder", "list")
	var notes strings.Builder
	f := writtenFile{path: path, note: func(format string, args ...any) { fmt.Fprintf(&notes, format, args...) }}
	now := time.Unix(1000, 0)
	put := func(after time.Duration, content string, wrote bool, note string) {
		t.Helper()
		now = now.Add(after)
		notes.Reset()
		if got := f.put(now, []byte(content)); got != wrote || !strings.Contains(notes.String(), note) || note == "" && notes.Len() > 0 {
			t.Errorf("put %q returned %v, want %v; it said %q, want %q", content, got, wrote, notes.String(), note)
		}
		text, _ := os.ReadFile(path)
		if f.inPlace != (string(text) == content && note != "no file") {
			t.Errorf("inPlace is %v; the file has %q, want %q", f.inPlace, text, content)
		}
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	put(0, "one", false, "there is no folder")
	put(time.Second, "one", false, "")
	must(os.Mkdir(filepath.Dir(path), 0o700))
	put(time.Second, "one", true, "")
	put(time.Millisecond, "one", false, "")
	put(time.Millisecond, "two", false, "")
	if got := f.wait(now); got != 998*time.Millisecond {
		t.Errorf("the write is due in %s", got)
	}
	put(998*time.Millisecond, "two", true, "")

	must(os.Remove(path))
	put(time.Second, "two", true, "is gone, and is written again")
	must(os.RemoveAll(filepath.Dir(path)))
	put(time.Second, "two", false, "there is no folder")
	put(time.Second, "two", false, "")
	must(os.Mkdir(filepath.Dir(path), 0o700))
	put(time.Second, "two", true, "is gone, and is written again")

	must(os.WriteFile(path, []byte("own"), 0o600))
	put(time.Second, "two", false, "")
	put(repairInterval-2*time.Second, "two", false, "")
	put(time.Second, "two", true, "was changed by another program, and is written again")
	must(os.WriteFile(path, []byte("longer than it was"), 0o600))
	put(time.Second, "three", true, "") // the list has changed

	put(time.Second, "", true, "") // an empty list
	put(time.Second, "", false, "")
	must(os.WriteFile(path, []byte("x"), 0o600))
	put(repairInterval, "", true, "was changed")

	found := writtenFile{path: path, note: f.note} // by the process that follows this one
	if found.put(now, []byte{}) || !found.inPlace {
		t.Error("a file that has the content is written")
	}
	must(os.Remove(path))
	must(os.Mkdir(path, 0o700))
	put(time.Hour, "four", false, "is a folder, not a regular file")
}

// TestExecHook: a run that fails is repeated with longer and longer pauses, a write makes it due at
// once, and two runs are never at once.
func TestExecHook(t *testing.T) {
	runs := filepath.Join(t.TempDir(), "runs")
	var notes strings.Builder
	h := execHook{text: "echo run >>" + runs, ended: make(chan error, 1),
		note: func(format string, args ...any) { fmt.Fprintf(&notes, format, args...) }}
	now, count := time.Unix(1000, 0), 0
	run := func(starts bool) {
		t.Helper()
		if h.run(t.Context(), now); h.running != starts {
			t.Fatalf("after %d runs, running is %v, want %v", count, h.running, starts)
		}
		if starts {
			count++
			if err := <-h.ended; err != nil {
				t.Fatal(err)
			}
			if text, err := os.ReadFile(runs); err != nil || strings.Count(string(text), "run") != count {
				t.Fatalf("%d runs: %q, %v", count, text, err)
			}
		}
	}
	run(false)
	h.written()
	run(true)
	for _, pause := range []time.Duration{1, 2, 4, 8, 16, 30, 30} {
		h.end(now, errors.New("exit status 1"))
		if got := h.wait(now); got != pause*time.Second {
			t.Errorf("the run is repeated in %s, want %ds", got, pause)
		}
		now = now.Add(pause*time.Second - 1)
		run(false)
		now = now.Add(1)
		run(true)
	}
	h.written() // during the run
	now = now.Add(execSlow + 1)
	h.run(t.Context(), now)
	h.run(t.Context(), now)
	if strings.Count(notes.String(), "still runs") != 1 {
		t.Errorf("a slow run is reported %q", notes.String())
	}
	h.end(now, errors.New("exit status 1"))
	run(true)
	h.end(now, nil)
	run(false)
	h.written()
	run(true)
	h.end(now, errors.New("exit status 1"))
	if got := h.wait(now); got != time.Second {
		t.Errorf("after a write the first pause is %s", got)
	}
}
