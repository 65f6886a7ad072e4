package main

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/server/servertest"
	"golang.org/x/sys/unix"
)

// emulator is the terminal of a test: a pty, and the screen that what is written to it makes.
type emulator struct {
	t       *testing.T
	pty     *os.File // the side of the user
	cmd     *exec.Cmd
	mu      sync.Mutex
	changed *sync.Cond
	rows    [][]rune
	row     int
	col     int
	over    bool
	raw     strings.Builder
}

// onTerminal starts a command on a terminal of its own.
func onTerminal(t *testing.T, width, height int, env []string, name string, args ...string) *emulator {
	t.Helper()
	pty, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.IoctlSetPointerInt(int(pty.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(int(pty.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	tty, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer tty.Close()
	x := &emulator{t: t, pty: pty}
	x.changed = sync.NewCond(&x.mu)
	x.resize(width, height)
	x.cmd = exec.Command(name, args...)
	x.cmd.Env = append(append(os.Environ(), "TERM=xterm-256color"), env...)
	x.cmd.Stdin, x.cmd.Stdout, x.cmd.Stderr = tty, tty, tty
	x.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := x.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	read := make(chan struct{})
	go func() {
		defer close(read)
		x.read()
	}()
	t.Cleanup(func() {
		_ = x.cmd.Process.Kill()
		_ = x.cmd.Wait()
		<-read // the last side of the user is closed
		pty.Close()
	})
	return x
}

// resize gives the terminal another size, which its foreground is notified of.
func (x *emulator) resize(width, height int) {
	x.t.Helper()
	x.mu.Lock()
	x.rows = make([][]rune, height)
	for i := range x.rows {
		x.rows[i] = []rune(strings.Repeat(" ", width))
	}
	x.mu.Unlock()
	if err := unix.IoctlSetWinsize(int(x.pty.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: uint16(height), Col: uint16(width)}); err != nil {
		x.t.Fatal(err)
	}
}

func (x *emulator) read() {
	var left []byte
	b := make([]byte, 4096)
	for {
		n, err := x.pty.Read(b)
		x.mu.Lock()
		x.raw.Write(b[:n])
		left = x.write(append(left, b[:n]...))
		x.over = x.over || err != nil
		x.changed.Broadcast()
		x.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// write does what a terminal does with bytes, as far as the command line uses it, and returns an
// incomplete end. mu is held.
func (x *emulator) write(b []byte) (left []byte) {
	for len(b) > 0 {
		if b[0] == 0x1b {
			end := strings.IndexFunc(string(b[1:]), func(r rune) bool { return r >= '@' && r != '[' })
			if end < 0 {
				return b
			}
			x.sequence(string(b[1:end+1]), b[end+1])
			b = b[end+2:]
			continue
		}
		if !utf8.FullRune(b) {
			return b
		}
		r, n := utf8.DecodeRune(b)
		b = b[n:]
		switch r {
		case '\r':
			x.col = 0
		case '\n':
			x.row = min(x.row+1, len(x.rows)-1)
		default:
			if x.row < len(x.rows) && x.col < len(x.rows[x.row]) {
				x.rows[x.row][x.col] = r
			}
			x.col++
		}
	}
	return nil
}

func (x *emulator) sequence(parameters string, last byte) {
	parameters = strings.TrimPrefix(parameters, "[")
	switch last {
	case 'H':
		row, col, _ := strings.Cut(parameters, ";")
		x.row, _ = strconv.Atoi(row)
		x.col, _ = strconv.Atoi(col)
		x.row, x.col = max(0, x.row-1), max(0, x.col-1)
	case 'K':
		if x.row < len(x.rows) {
			// Behind a full row the cursor is still in its last column, as in xterm.
			for i := min(x.col, len(x.rows[x.row])-1); i < len(x.rows[x.row]); i++ {
				x.rows[x.row][i] = ' '
			}
		}
	case 'J': // from the first column of a row
		for _, row := range x.rows[min(x.row, len(x.rows)):] {
			for i := range row {
				row[i] = ' '
			}
		}
	}
}

// screen is what the terminal shows. mu is held.
func (x *emulator) screen() string {
	var b strings.Builder
	for _, row := range x.rows {
		b.WriteString(strings.TrimRight(string(row), " ") + "\n")
	}
	return b.String()
}

// until waits until the screen is as it should be, and returns it.
func (x *emulator) until(what string, ok func(screen string) bool) string {
	x.t.Helper()
	late := time.AfterFunc(patience, func() {
		x.mu.Lock()
		defer x.mu.Unlock()
		x.over = true
		x.changed.Broadcast()
	})
	defer late.Stop()
	x.mu.Lock()
	defer x.mu.Unlock()
	for !ok(x.screen()) {
		if x.over {
			x.t.Fatalf("%s did not come; the screen is\n%s", what, x.screen())
		}
		x.changed.Wait()
	}
	return x.screen()
}

// shows waits until a text is on the screen.
func (x *emulator) shows(text string) string {
	x.t.Helper()
	return x.until(strconv.Quote(text), func(screen string) bool { return strings.Contains(screen, text) })
}

func (x *emulator) press(keys string) {
	x.t.Helper()
	if _, err := x.pty.WriteString(keys); err != nil {
		x.t.Fatal(err)
	}
}

// TestTopOnATerminal: the lists as a user meets them on a terminal: what they show first, what
// changes, another size, a server that is gone, and ^C.
func TestTopOnATerminal(t *testing.T) {
	srv := servertest.Start(t, servertest.RealTime())
	ctx := t.Context()
	c, err := client.Dial(ctx, srv.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	session := func(about string) *client.Session {
		s, err := c.Session(ctx, "/default", client.Description(about))
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	holder, waiter := session("the holder"), session("the \x1b[31mwaiter")
	if _, err := holder.Mutex("payments").Lock(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := holder.Mutex("quiet").Lock(ctx); err != nil {
		t.Fatal(err)
	}
	queued := make(chan uint64, 1)
	gone := make(chan struct{})
	defer func() { <-gone }()
	defer func() { _ = waiter.Close(ctx) }()
	go func() {
		defer close(gone)
		_, _ = waiter.Mutex("payments").Lock(ctx, client.OnQueued(func(token uint64) { queued <- token }))
	}()
	<-queued

	x := onTerminal(t, 100, 30, []string{"SIGNALBOX_ENDPOINTS=" + srv.Addr()}, "signalbox", "top", "--interval", "500ms")
	first := x.shows("SESSIONS\n")
	for _, want := range []string{"INSTANCES\n", "SEMAPHORES\n", "payments", "quiet", "max/max", "the holder",
		`the \x1b[31mwaiter`} {
		if !strings.Contains(first, want) {
			t.Errorf("%q is missing", want)
		}
	}
	t.Logf("100 x 30:\n%s", first)

	if err := waiter.Close(ctx); err != nil {
		t.Fatal(err)
	}
	x.until("the end of the queue on the screen", func(s string) bool {
		return !strings.Contains(s, "waiter\n") && strings.Contains(s, "payments")
	})
	x.resize(200, 60)
	x.until("the whole of the lists", func(s string) bool { return strings.Contains(s, "ERROR\n") })
	x.resize(30, 8)
	x.until("the first lists", func(s string) bool {
		return strings.Contains(s, "INSTANCES\n") && strings.Contains(s, "…\n") && !strings.Contains(s, "SESSIONS\n")
	})
	x.resize(200, 30)
	x.shows("payments")

	srv.Close()
	x.until("the lists as they were", func(s string) bool {
		return strings.Contains(s, ", as of ") && strings.Contains(s, "payments")
	})
	x.press("\x03")
	if err := x.cmd.Wait(); err != nil {
		t.Errorf("^C: %v", err)
	}
}

// TestTopOnADumbTerminal: it prints the lists again and again, without sequences, until ^C.
func TestTopOnADumbTerminal(t *testing.T) {
	srv := servertest.Start(t, servertest.RealTime())
	x := onTerminal(t, 100, 30, []string{"SIGNALBOX_ENDPOINTS=" + srv.Addr(), "TERM=dumb", "NO_COLOR=1"}, "signalbox",
		"top", "--interval", "500ms")
	var raw string
	x.until("two times", func(string) bool {
		raw = x.raw.String()
		return strings.Count(raw, "INSTANCES\r\n") >= 2
	})
	if strings.Contains(raw, "\x1b") {
		t.Errorf("there are sequences: %q", raw)
	}
	x.press("\x03")
	if err := x.cmd.Wait(); err != nil {
		t.Errorf("^C: %v", err)
	}
}
