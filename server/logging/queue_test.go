package logging

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/signalbox-dev/signalbox/server/servertest/form"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// stuckFile is a file whose writes wait until it is let go.
type stuckFile struct {
	began chan struct{} // gets one for each write
	let   chan struct{}
	bytes.Buffer
}

func newStuckFile() *stuckFile {
	return &stuckFile{began: make(chan struct{}, 1<<20), let: make(chan struct{})}
}

func (f *stuckFile) Write(p []byte) (int, error) {
	f.began <- struct{}{}
	<-f.let
	return f.Buffer.Write(p)
}

// TestNobodyReads: with a file that takes nothing, lines are queued up to the bound, then dropped
// and counted, and nobody waits. When it goes on, the queued lines come first, then one line about
// those that are missing, then what is logged from there on.
func TestNobodyReads(t *testing.T) {
	f := newStuckFile()
	l, err := New(f, "info", "text")
	if err != nil {
		t.Fatal(err)
	}
	log := l.Logger()
	log.Info("first")
	<-f.began // one goroutine is stuck
	n := 0
	for ; l.Dropped() == 0; n++ {
		log.Info("line", "number", n)
	}
	log.Info("line", "number", n)
	if got := l.Dropped(); got != 2 {
		t.Fatalf("%d lines dropped, want 2", got)
	}
	if l.out.size > maxWaiting || l.out.size < maxWaiting/2 {
		t.Errorf("%d bytes wait, the bound is %d", l.out.size, maxWaiting)
	}
	if l.out.Flush(time.Millisecond) {
		t.Error("a stuck queue is flushed")
	}
	close(f.let)
	l.Flush(time.Hour)
	log.Info("last")
	l.Flush(time.Hour)
	lines := strings.Split(strings.TrimSuffix(f.String(), "\n"), "\n")
	if len(lines) != n+2 { // the first, all but the last of n, the gap's, the last
		t.Fatalf("%d lines, want %d", len(lines), n+2)
	}
	for i, want := range map[int]string{
		0: "msg=first", 1: "number=0", n - 1: fmt.Sprintf("number=%d", n-2),
		n:     `level=WARN msg="log lines were dropped, nobody read the earlier ones" lines=2`,
		n + 1: "msg=last",
	} {
		if !strings.HasSuffix(lines[i], want) {
			t.Errorf("line %d is %q, want %q", i, lines[i], want)
		}
	}
	if l.Dropped() != 2 {
		t.Error(l.Dropped())
	}
}

// failing is a file that takes some bytes, and then returns an error.
type failing struct {
	room int
	bytes.Buffer
}

func (f *failing) Write(p []byte) (int, error) {
	if len(p) <= f.room {
		f.room -= len(p)
		return f.Buffer.Write(p)
	}
	n, _ := f.Buffer.Write(p[:f.room])
	f.room = 0
	return n, syscall.ENOSPC
}

// TestWriteFails: a line that is cut short is dropped, and the next one begins on a line of its own.
func TestWriteFails(t *testing.T) {
	f := &failing{room: 10}
	q := NewQueue(f)
	q.resume = func(n uint64) []byte { return fmt.Appendf(nil, "%d dropped\n", n) }
	say := func(text string) {
		fmt.Fprintln(q, text)
		q.Flush(time.Hour)
	}
	say("one")
	say("two two two")
	if q.Dropped() != 1 {
		t.Errorf("%d dropped, want 1", q.Dropped())
	}
	say("three") // finds that nothing can be written still
	f.room = 100
	say("four") // is dropped still, and finds that writing goes on
	say("five")
	const want = "one\ntwo tw\n3 dropped\nfive\n"
	if f.String() != want || q.Dropped() != 3 {
		t.Errorf("%d dropped, and written is %q, want %q", q.Dropped(), f.String(), want)
	}
}

// TestWrites: lines come in order from many goroutines, whole, in writes that a pipe takes in one
// piece. A reader that has gone is no error to those that write.
func TestWrites(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	q := NewQueue(w)
	var read bytes.Buffer
	var reading, writing sync.WaitGroup
	reading.Go(func() { _, _ = io.Copy(&read, r) })
	const from, each = 4, 500
	for i := range from {
		writing.Go(func() {
			for n := range each {
				if k, err := fmt.Fprintf(q, "%d %d %s\n", i, n, strings.Repeat("x", n)); err != nil || k < n {
					t.Error(k, err)
				}
			}
		})
	}
	writing.Wait()
	q.Flush(time.Hour)
	_ = w.Close()
	reading.Wait()
	_ = r.Close()
	var next [from]int
	for line := range strings.Lines(read.String()) {
		var i, n int
		var x string
		if _, err := fmt.Sscan(line, &i, &n, &x); err != nil && n > 0 || n != next[i] || len(x) != n {
			t.Fatalf("after %v: %q, %v", next, line, err)
		}
		next[i]++
	}
	if next != [from]int{each, each, each, each} || q.Dropped() != 0 {
		t.Error(next, q.Dropped())
	}
	// The pipe is closed.
	fmt.Fprintln(q, "to nobody")
	q.Flush(time.Hour)
	if q.Dropped() != 1 {
		t.Error(q.Dropped())
	}
}

// sizes notes the length of each write.
type sizes struct{ list []int }

func (s *sizes) Write(p []byte) (int, error) {
	s.list = append(s.list, len(p))
	return len(p), nil
}

func TestPartsAreWholeLines(t *testing.T) {
	line := strings.Repeat("x", 999) + "\n"
	long := strings.Repeat("y", 9999) + "\n"
	var s sizes
	q := NewQueue(&s)
	q.writeLines([]byte(strings.Repeat(line, 5) + long + line + "end"))
	if got, want := fmt.Sprint(s.list), "[4000 1000 10000 1003]"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if !q.torn {
		t.Error("the file ends within a line")
	}
}

var errBroken = errors.New("broken")

// broken is a file that takes nothing.
type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, errBroken }

// TestNoAllocation: what a line costs its goroutine is the line alone.
func TestNoAllocation(t *testing.T) {
	q := NewQueue(io.Discard)
	line := []byte(strings.Repeat("x", 99) + "\n")
	began := newStuckFile()
	q.to = began
	_, _ = q.Write(line)
	<-began.began
	for range 100 {
		_, _ = q.Write(line)
	}
	if n := testing.AllocsPerRun(20, func() { _, _ = q.Write(line) }); n != 0 && !form.Race {
		t.Errorf("%v allocations", n)
	}
	close(began.let)
	q.Flush(time.Hour)
	lost := NewQueue(broken{})
	_, _ = lost.Write(line)
	lost.Flush(time.Hour)
	if lost.Dropped() != 1 {
		t.Error(lost.Dropped())
	}
}
