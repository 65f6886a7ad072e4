// Package logging is the log of a program: lines of a level and a format that may change while it
// runs, behind a bounded queue. A goroutine that logs never waits for the file, the pipe or the
// terminal that takes the lines: event loops and the failure detector log too.
//
//	log, err := logging.New(os.Stderr, "info", "text")
//	log.Logger().Info("serving", "listen", addr)
//	defer log.Flush(logging.FlushTimeout)
//
// A line that finds no room in the queue is dropped and counted, and so is one whose write fails.
// After a gap nothing is accepted until all earlier lines are written. Then one line says how many
// are missing: a gap is one line, in its place.
//
// A write to a pipe without a reader raises SIGPIPE, which ends a process unless it is caught:
// programs call [CatchBrokenPipes] first.
package logging
