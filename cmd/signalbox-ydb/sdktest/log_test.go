package sdktest

import (
	"bytes"
	"strings"
	"sync"
)

// lineLog is a log that a test reads while it is written.
type lineLog struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lineLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

// lines counts the lines that have a text in them.
func (l *lineLog) lines(with string) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range strings.Lines(l.b.String()) {
		if strings.Contains(line, with) {
			n++
		}
	}
	return n
}
