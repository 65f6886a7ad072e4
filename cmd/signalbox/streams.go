package main

import (
	"errors"
	"fmt"
	"io"
	"syscall"
	"time"

	"github.com/signalbox-dev/signalbox/server/logging"
)

// What this process prints goes one of three ways:
//
//   - the output of a verb that is there to print: its writes wait for the reader, and it ends when
//     the reader has gone (streams.output);
//   - reports of a verb that does something else for long, such as to hold a lock: it goes on
//     whether anybody reads or not (streams.reports);
//   - messages on standard error, of any verb (streams.notes).
//
// The log of an instance is a fourth one, of package logging.

// streams are the input and output of a run of the command line.
type streams struct {
	stdin          io.Reader
	stdout, stderr io.Writer       // for the commands that it runs
	reports, notes stream          // in front of them
	stopping       <-chan struct{} // closed once this process is asked to end
}

// orderPatience is how long a report or message waits to be written. It keeps the order of what is
// printed, by this process and by the commands that it runs; a stream that nobody reads is not
// waited for longer.
const orderPatience = 100 * time.Millisecond

// exitBrokenPipe is the exit code of a verb whose output is not read any more: 128 and SIGPIPE, as
// shells have it.
const exitBrokenPipe = 128 + int(syscall.SIGPIPE)

// stream is an output that need not be read.
type stream struct{ *logging.Queue }

func newStream(to io.Writer) stream { return stream{logging.NewQueue(to)} }

// Write implements io.Writer.
func (s stream) Write(p []byte) (int, error) {
	n, err := s.Queue.Write(p)
	s.Flush(orderPatience)
	return n, err
}

// note prints a message on standard error.
func (s *streams) note(format string, args ...any) { fmt.Fprintf(s.notes, format, args...) }

// flush ends the streams before the process ends.
func (s *streams) flush() {
	s.reports.Flush(logging.FlushTimeout)
	s.notes.Flush(logging.FlushTimeout)
}

// output is standard output for a verb's result. A reader that takes its time is waited
// for, until this process is asked to end.
func (s *streams) output() io.Writer { return &output{s.stdout, s.stopping} }

// help is the output of help and of completions, which end well whether they are read or not.
type help struct{ io.Writer }

// Write implements io.Writer.
func (h help) Write(p []byte) (int, error) {
	n, err := h.Writer.Write(p)
	if readerGone(err) {
		return len(p), nil
	}
	return n, err
}

type output struct {
	to       io.Writer
	stopping <-chan struct{}
}

// outputError is an error of writing to standard output.
type outputError struct{ error }

func (e *outputError) Unwrap() error { return e.error }

// readerGone reports whether an error says that the output is not read any more.
func readerGone(err error) bool {
	e, ok := errors.AsType[*outputError](err)
	return ok && errors.Is(e, syscall.EPIPE)
}

// errNotRead: this process was asked to end, and its output is not read.
var errNotRead = &outputError{errors.New("interrupted while nobody reads the output")}

// Write implements io.Writer. After errNotRead a write goes on, until the process ends.
func (o *output) Write(p []byte) (int, error) {
	type outcome struct {
		n   int
		err error
	}
	done := make(chan outcome, 1)
	go func() {
		n, err := o.to.Write(p)
		done <- outcome{n, err}
	}()
	var r outcome
	select {
	case r = <-done:
	case <-o.stopping:
		select {
		case r = <-done:
		case <-time.After(logging.FlushTimeout):
			return 0, errNotRead
		}
	}
	if r.err != nil {
		return r.n, &outputError{r.err}
	}
	return r.n, nil
}
