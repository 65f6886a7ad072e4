package main

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
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
	l, err := newLogging(&out, "info", "text")
	if err != nil {
		t.Fatal(err)
	}
	log := l.logger().With("shard", 2).WithGroup("held")
	log.Debug("hidden", "by", "level")
	log.Info("shown", "session", 7)
	if s := out.take(); strings.Contains(s, "hidden") || !strings.Contains(s, "msg=shown shard=2 held.session=7\n") {
		t.Errorf("as text: %q", s)
	}
	if err := l.set("debug", "json"); err != nil {
		t.Fatal(err)
	}
	log.Debug("shown", "session", 7)
	if s := out.take(); !strings.Contains(s, `"level":"DEBUG","msg":"shown","shard":2,"held":{"session":7}}`) {
		t.Errorf("as JSON: %q", s)
	}
	for _, bad := range [][2]string{{"loud", "text"}, {"info", "xml"}, {"", ""}, {"info+2", "text"}} {
		var usage *usageError
		if err := l.set(bad[0], bad[1]); !errors.As(err, &usage) {
			t.Errorf("%v: %v", bad, err)
		}
	}
	log.Debug("still", "session", 7)
	if s := out.take(); !strings.HasPrefix(s, "{") {
		t.Errorf("a change that was refused changed the log: %q", s)
	}
}

// TestLoggingChangesMeanwhile: lines are whole while level and format change.
func TestLoggingChangesMeanwhile(t *testing.T) {
	var out lockedBuffer
	l, err := newLogging(&out, "info", "text")
	if err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	for i := range 4 {
		log := l.logger().With("from", i)
		running.Go(func() {
			for range 200 {
				log.LogAttrs(t.Context(), slog.LevelInfo, "line")
			}
		})
	}
	for i := range 100 {
		if err := l.set("info", []string{"text", "json"}[i%2]); err != nil {
			t.Error(err)
		}
	}
	running.Wait()
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
