package logging

import (
	"bytes"
	"io"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// maxWaiting is how many bytes of lines may wait in a queue: some thousand lines.
	maxWaiting = 1 << 20
	// maxWrite is how many bytes are written at once, unless one line has more. A pipe takes that
	// much (PIPE_BUF) without mixing it with what other programs write.
	maxWrite = 4096
	// keptBuffer is how large a buffer may be that an empty queue keeps.
	keptBuffer = 64 << 10
	// FlushTimeout is how long a program that ends waits for its last lines to be written.
	FlushTimeout = time.Second
)

// Queue is a bounded queue of lines in front of a file. Write never waits: lines that find no room,
// and lines that cannot be written, are dropped and counted. Its methods may be called from any
// goroutine. A goroutine runs only while lines wait.
type Queue struct {
	to     io.Writer
	resume func(dropped uint64) []byte // the line that ends a gap; nil: none

	dropped atomic.Uint64 // lines ever

	mu      sync.Mutex
	waiting []byte
	size    int           // bytes in waiting, and those that are being written
	gap     uint64        // lines dropped behind those in waiting. While it is not 0 no line is accepted
	spare   []byte        // the buffer that is not waiting
	idle    chan struct{} // closed when nothing waits any more; nil: nothing waits

	torn bool // the file ends within a line; owned by the writer
}

// NewQueue returns a queue in front of a file.
func NewQueue(to io.Writer) *Queue { return &Queue{to: to} }

// Write queues whole lines. It never fails: what is dropped is counted.
func (q *Queue) Write(lines []byte) (int, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	// Beyond a gap nothing is accepted until its line is written. If writing failed, this call tries
	// again.
	if q.gap > 0 || q.size+len(lines) > maxWaiting {
		q.drop(lines)
	} else {
		q.waiting = append(q.waiting, lines...)
		q.size += len(lines)
	}
	if q.idle == nil {
		q.idle = make(chan struct{})
		go q.write()
	}
	return len(lines), nil
}

// drop counts lines as dropped. The lock is held.
func (q *Queue) drop(lines []byte) {
	n := max(1, uint64(bytes.Count(lines, []byte{'\n'})))
	q.gap += n
	q.dropped.Add(n)
}

// Dropped is how many lines were dropped since the start.
func (q *Queue) Dropped() uint64 { return q.dropped.Load() }

// Flush waits until all that was queued is written or dropped, for a limited time, and reports
// whether it is.
func (q *Queue) Flush(limit time.Duration) bool {
	q.mu.Lock()
	idle := q.idle
	q.mu.Unlock()
	if idle == nil {
		return true
	}
	t := time.NewTimer(limit)
	defer t.Stop()
	select {
	case <-idle:
		return true
	case <-t.C:
		return false
	}
}

// write writes what waits, and ends when nothing waits any more. One goroutine at a time runs it.
func (q *Queue) write() {
	q.mu.Lock()
	defer q.mu.Unlock()
	for {
		lines, gap := q.waiting, uint64(0)
		if len(lines) == 0 {
			if q.gap == 0 {
				break
			}
			gap, q.gap = q.gap, 0
			if q.resume == nil {
				continue
			}
			lines = q.resume(gap)
		} else {
			q.waiting, q.spare = q.spare[:0], nil
		}
		q.mu.Unlock()
		left := q.writeLines(lines)
		q.mu.Lock()
		if gap > 0 {
			if len(left) > 0 {
				q.gap += gap
				q.dropAll()
				break
			}
			continue
		}
		q.size -= len(lines)
		if cap(lines) <= keptBuffer {
			q.spare = lines[:0]
		}
		if len(left) > 0 {
			q.drop(left)
			q.dropAll()
			break
		}
	}
	close(q.idle)
	q.idle = nil
}

// dropAll drops what waits: the file takes nothing. The lock is held.
func (q *Queue) dropAll() {
	if len(q.waiting) > 0 {
		q.drop(q.waiting)
		q.size -= len(q.waiting)
		q.waiting = q.waiting[:0]
	}
}

// writeLines writes lines, some at a time, and returns those that are not written whole.
func (q *Queue) writeLines(lines []byte) (left []byte) {
	for len(lines) > 0 {
		part := lines[:partLength(lines)]
		text := part
		if q.torn {
			text = append([]byte{'\n'}, part...)
		}
		n, err := q.to.Write(text)
		if n > 0 {
			q.torn = text[n-1] != '\n'
		}
		if err != nil {
			written := max(0, n-(len(text)-len(part)))
			return lines[bytes.LastIndexByte(part[:written], '\n')+1:]
		}
		lines = lines[len(part):]
	}
	return nil
}

// partLength is how much of the lines is written at once.
func partLength(lines []byte) int {
	if len(lines) <= maxWrite {
		return len(lines)
	}
	if n := bytes.LastIndexByte(lines[:maxWrite], '\n'); n >= 0 {
		return n + 1
	}
	if n := bytes.IndexByte(lines, '\n'); n >= 0 {
		return n + 1
	}
	return len(lines)
}
