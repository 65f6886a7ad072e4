package logging

import (
	"bytes"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"
)

// lockedBuffer is a buffer that goroutines share.
type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

// take is what was written since the last time.
func (b *lockedBuffer) take() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	defer b.buf.Reset()
	return b.buf.String()
}

// TestLoggingChanges: loggers that were made before follow a change of level and format, with their
// attributes and groups.
func TestLoggingChanges(t *testing.T) {
	var out lockedBuffer
	l, err := New(&out, "info", "text")
	if err != nil {
		t.Fatal(err)
	}
	log := l.Logger().With("shard", 2).WithGroup("held")
	log.Debug("hidden", "by", "level")
	log.Info("shown", "session", 7)
	l.Flush(time.Hour)
	if s := out.take(); strings.Contains(s, "hidden") || !strings.Contains(s, "msg=shown shard=2 held.session=7\n") {
		t.Errorf("as text: %q", s)
	}
	if err := l.Set("debug", "json"); err != nil {
		t.Fatal(err)
	}
	log.Debug("shown", "session", 7)
	l.Flush(time.Hour)
	if s := out.take(); !strings.Contains(s, `"level":"DEBUG","msg":"shown","shard":2,"held":{"session":7}}`) {
		t.Errorf("as JSON: %q", s)
	}
	for _, bad := range [][2]string{{"loud", "text"}, {"info", "xml"}, {"", ""}, {"info+2", "text"}} {
		if err := l.Set(bad[0], bad[1]); err == nil {
			t.Errorf("%v is taken", bad)
		}
	}
	log.Debug("still", "session", 7)
	l.Flush(time.Hour)
	if s := out.take(); !strings.HasPrefix(s, "{") {
		t.Errorf("a change that was refused changed the log: %q", s)
	}
}

// TestLoggingChangesMeanwhile: lines are whole while level and format change.
func TestLoggingChangesMeanwhile(t *testing.T) {
	var out lockedBuffer
	l, err := New(&out, "info", "text")
	if err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	for i := range 4 {
		log := l.Logger().With("from", i)
		running.Go(func() {
			for range 200 {
				log.LogAttrs(t.Context(), slog.LevelInfo, "line")
			}
		})
	}
	for i := range 100 {
		if err := l.Set("info", []string{"text", "json"}[i%2]); err != nil {
			t.Error(err)
		}
	}
	running.Wait()
	l.Flush(time.Hour)
	lines := 0
	for line := range strings.Lines(out.take()) {
		lines++
		if !strings.HasPrefix(line, "time=") && !strings.HasPrefix(line, `{"time":`) {
			t.Errorf("a line is %q", line)
		}
	}
	if lines != 800 {
		t.Errorf("%d lines, want 800", lines)
	}
}
