package audit

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"
)

// run is the writer, the only goroutine that uses the destination.
func (l *Log) run() {
	defer close(l.done)
	var retry <-chan time.Time
	for {
		select {
		case <-l.wake:
		case <-retry:
		}
		retry = nil
		closing := l.flush()
		if closing {
			return
		}
		if l.broken {
			retry = time.After(l.retry)
		}
	}
}

// flush writes the queued events, then reopens or closes the file if asked to.
func (l *Log) flush() (closing bool) {
	l.mu.Lock()
	batch, lost, closing := l.queue, l.lost, l.closed
	reopen, waiters := l.reopen, l.reopenWaiters
	l.reopen, l.reopenWaiters = false, nil
	due := !l.broken || reopen || closing || !time.Now().Before(l.retryAt)
	if due {
		l.queue, l.lost = nil, 0
		if len(batch) > 0 {
			l.writing = batch[0].id.count
		}
		if lost > 0 && l.lostID == (id{}) {
			l.next.count++
			l.lostID = l.next
		}
	}
	lostID := l.lostID
	l.mu.Unlock()
	if !due {
		return false
	}
	var b []byte
	for i := range batch {
		b = appendLine(b, &batch[i].event, batch[i].id)
	}
	if lost > 0 {
		b = appendLine(b, &Event{Title: "lost_events", Severity: High, Time: l.now(), Fields: []Field{{"count", lost}},
			Message: fmt.Sprintf("%d events found no room in the queue and are not in this log", lost)}, lostID)
	}
	lines, err := l.writeLines(b)
	if lines > len(batch) {
		lost = 0 // that is written
	}
	batch = batch[min(lines, len(batch)):]
	if reopen && err == nil {
		l.closeFile()
		err = l.openFile()
	}
	l.noteResult(err, batch, lost, closing)
	for _, w := range waiters {
		w <- err
	}
	if closing {
		l.closeFile()
	}
	return closing
}

// writeLines writes lines, into a newly opened file if the last try failed, and returns how many
// were written whole.
func (l *Log) writeLines(b []byte) (lines int, err error) {
	if l.broken && l.path != "" {
		l.closeFile()
		if err := l.openFile(); err != nil {
			return 0, err
		}
	}
	if len(b) == 0 {
		return 0, nil
	}
	if l.torn {
		b = append([]byte{'\n'}, b...)
	}
	n, err := l.out.Write(b)
	lines = bytes.Count(b[:n], []byte{'\n'})
	if l.torn && n > 0 {
		lines, l.torn = lines-1, false
	}
	if err != nil {
		l.torn = l.torn || n > 0 && b[n-1] != '\n'
		return lines, fmt.Errorf("audit log: %w", err)
	}
	return lines, nil
}

// noteResult keeps unwritten events for the next try, as far as there is room. It logs a failure
// once, and its end once.
func (l *Log) noteResult(err error, batch []queued, lost uint64, closing bool) {
	if err == nil {
		if l.broken {
			l.log.Info("audit log is written again")
		}
		l.broken = false
		l.mu.Lock()
		defer l.mu.Unlock()
		l.lostID, l.writing = id{}, 0
		return
	}
	if !l.broken {
		l.log.Error("audit log cannot be written, events will be lost", "error", err)
	}
	l.broken, l.retryAt = true, time.Now().Add(l.retry)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lost += lost
	if lost == 0 {
		l.lostID = id{}
	}
	if l.writing = 0; len(batch) > 0 {
		l.writing = batch[0].id.count
	}
	if closing {
		l.lost += uint64(len(batch))
		l.total += uint64(len(batch))
		return
	}
	kept := append(batch, l.queue...)
	if over := len(kept) - l.limit; over > 0 { // the oldest stay: they show how it began
		kept = kept[:l.limit]
		l.lost += uint64(over)
		l.total += uint64(over)
	}
	l.queue, l.writing = kept, 0
}

func (l *Log) openFile() error {
	// Without O_NONBLOCK, opening a pipe without a reader would wait.
	f, err := os.OpenFile(l.path, os.O_CREATE|os.O_WRONLY|os.O_APPEND|syscall.O_NONBLOCK, 0o600)
	if errors.Is(err, syscall.ENXIO) {
		err = fmt.Errorf("%w: nobody reads the pipe", err)
	}
	if err != nil {
		return fmt.Errorf("audit log: %w", err)
	}
	l.file, l.out = f, f
	return nil
}

func (l *Log) closeFile() {
	if l.file == nil {
		return
	}
	if err := l.file.Sync(); err != nil {
		l.log.Warn("audit log may not be on disk", "error", err)
	}
	_ = l.file.Close() // synced
	l.file = nil
}
