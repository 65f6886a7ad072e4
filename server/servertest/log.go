package servertest

import (
	"io"
	"log/slog"
	"sync"
	"testing"
)

// testLog passes the server's log, from warnings up, to its test, and drops it when the test is
// over: the raft engine may write a line late.
type testLog struct {
	mu  sync.Mutex
	out io.Writer
}

func newTestLog(t testing.TB) *testLog {
	if t == nil {
		return &testLog{}
	}
	return &testLog{out: t.Output()}
}

func (l *testLog) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(l, &slog.HandlerOptions{Level: slog.LevelWarn}))
}

// Write implements io.Writer.
func (l *testLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.out == nil {
		return len(p), nil
	}
	return l.out.Write(p)
}

func (l *testLog) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.out = nil
}
