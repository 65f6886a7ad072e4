package audit

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"
)

const (
	// DefaultQueue is how many events may wait to be written.
	DefaultQueue = 4096
	// RetryAfter is the pause after a failure to open or write the file.
	RetryAfter = time.Second
	// Stderr, as a destination, is the standard error of the process.
	Stderr = "stderr"
)

// Config of a Log. Destination, Instance and Generation are required.
type Config struct {
	// Destination is Stderr, or a file, made with mode 0600 when missing, with its lines appended.
	Destination string
	Instance    uint64           // id of this instance
	Generation  uint64           // how many times it has started: see Generation
	Queue       int              // default DefaultQueue
	Now         func() time.Time // default time.Now
	Logger      *slog.Logger     // for failures; default slog.Default()

	// For tests.
	stderr io.Writer
	retry  time.Duration // default RetryAfter
}

// Log is an open audit log. Its methods may be called from any goroutine. A nil *Log ignores
// events: auditing is off.
type Log struct {
	now  func() time.Time
	log  *slog.Logger
	path string // empty is standard error

	mu            sync.Mutex
	next          id       // Invariant: each event takes a count, written or lost
	queue         []queued // waits
	writing       uint64   // count of the first event that the writer has taken and not written; 0: none
	limit         int
	retry         time.Duration
	lost          uint64        // since the last lost_events line
	lostID        id            // of the lost_events line that could not be written yet; zero: none
	total         uint64        // lost ever
	wake          chan struct{} // holds one
	reopen        bool          // reopen the file before the next write
	reopenWaiters []chan error  // of Reopen
	closed        bool
	done          chan struct{} // the writer has ended

	// Owned by the writer.
	out     io.Writer
	file    *os.File
	broken  bool // the last try failed, which was logged
	torn    bool // the destination ends within a line
	retryAt time.Time
}

type queued struct {
	event Event
	id    id
}

// Open starts an audit log. A file that cannot be opened is an error here; later failures are
// logged and retried.
func Open(c Config) (*Log, error) {
	if c.Destination == "" {
		return nil, errors.New("the audit log has no destination; give a file, or stderr")
	}
	if c.Queue <= 0 {
		c.Queue = DefaultQueue
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	c.Logger = cmp.Or(c.Logger, slog.Default())
	c.stderr = cmp.Or[io.Writer](c.stderr, os.Stderr)
	l := &Log{now: c.Now, log: c.Logger, limit: c.Queue, retry: cmp.Or(c.retry, RetryAfter),
		next: id{instance: c.Instance, generation: c.Generation}, wake: make(chan struct{}, 1), done: make(chan struct{})}
	if c.Destination == Stderr {
		l.out = c.stderr
	} else {
		path, err := filepath.Abs(c.Destination)
		if err != nil {
			return nil, fmt.Errorf("audit log: %w", err)
		}
		l.path = path
		if err := l.openFile(); err != nil {
			return nil, err
		}
	}
	go l.run()
	return l, nil
}

// Write queues an event and never waits. An event is lost, and counted, if the queue is full or the
// log closed.
func (l *Log) Write(e Event) {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.next.count++
	if l.closed || len(l.queue) >= l.limit {
		l.lost++
		l.total++
		return
	}
	if e.Time.IsZero() {
		e.Time = l.now()
	}
	l.queue = append(l.queue, queued{e, l.next})
	l.wakeWriter()
}

// Position is how many events there were, and how many before the first one that is still to be
// written. Lost ones count as written: a line says that they are lost, or will.
func (l *Log) Position() (events, written uint64) {
	if l == nil {
		return 0, 0
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	switch events = l.next.count; {
	case l.writing > 0:
		return events, l.writing - 1
	case len(l.queue) > 0:
		return events, l.queue[0].id.count - 1
	}
	return events, events
}

// Lost is how many events were lost since the start.
func (l *Log) Lost() uint64 {
	if l == nil {
		return 0
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.total
}

// Reopen opens the file again once queued events are written, so that a log rotation may have
// renamed it before. After an error the log keeps trying.
func (l *Log) Reopen() error {
	if l == nil || l.path == "" {
		return nil
	}
	answer := make(chan error, 1)
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return errors.New("the audit log is closed")
	}
	l.reopen = true
	l.reopenWaiters = append(l.reopenWaiters, answer)
	l.wakeWriter()
	l.mu.Unlock()
	return <-answer
}

// Close writes the queued events, in one try, and ends the log. It waits for the disk.
func (l *Log) Close() error {
	if l == nil {
		return nil
	}
	l.mu.Lock()
	l.closed = true
	l.wakeWriter()
	l.mu.Unlock()
	<-l.done
	if lost := l.Lost(); lost > 0 {
		return fmt.Errorf("%d events were lost; the audit log could not be written as fast as they came, or not at all",
			lost)
	}
	return nil
}

// wakeWriter wakes the writer. The lock is held.
func (l *Log) wakeWriter() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}
