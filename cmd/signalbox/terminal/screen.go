package terminal

import (
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/term"
)

// Screen shows lines on a whole terminal, and gives it back as it was.
type Screen struct {
	out     *os.File
	in      *os.File // nil: no keys are read
	former  *term.State
	shown   []string // the lines that the terminal has; nil: not known
	Resized chan os.Signal
	Keys    chan Key // closed when the terminal is gone
}

// Modes of the terminal: the other screen, no cursor, lines that end at the edge; and back.
const (
	enterScreen = "\x1b[?1049h\x1b[?25l\x1b[?7l\x1b[2J"
	leaveScreen = "\x1b[?7h\x1b[?25h\x1b[?1049l"
)

// NewScreen takes a terminal over. Keys are read if in is a terminal, too. Close gives it back.
func NewScreen(out *os.File, in any) (*Screen, error) {
	s := &Screen{out: out, Resized: make(chan os.Signal, 1), Keys: make(chan Key, 64)}
	if f, ok := in.(*os.File); ok && Is(f) {
		s.in = f
	}
	if err := s.enter(); err != nil {
		return nil, err
	}
	signal.Notify(s.Resized, syscall.SIGWINCH)
	if s.in != nil {
		go s.readKeys()
	}
	return s, nil
}

func (s *Screen) enter() (err error) {
	if s.in != nil {
		if s.former, err = term.MakeRaw(int(s.in.Fd())); err != nil {
			return err
		}
	}
	s.shown = nil
	_, err = s.out.WriteString(enterScreen)
	return err
}

func (s *Screen) leave() {
	_, _ = s.out.WriteString(leaveScreen)
	if s.former != nil {
		_ = term.Restore(int(s.in.Fd()), s.former)
		s.former = nil
	}
}

// Close gives the terminal back as it was.
func (s *Screen) Close() {
	signal.Stop(s.Resized)
	s.leave()
}

// Suspend stops this process until it is continued, as ^Z does outside of a screen.
func (s *Screen) Suspend() error {
	s.leave()
	continued := make(chan os.Signal, 1)
	signal.Notify(continued, syscall.SIGCONT)
	defer signal.Stop(continued)
	if err := syscall.Kill(0, syscall.SIGTSTP); err == nil { // the whole job, as the terminal would
		select {
		case <-continued:
		case <-time.After(time.Second): // the kernel stops no job that has no shell, as under "ssh -t"
		}
	}
	return s.enter()
}

// readKeys ends with the process: a read of a terminal cannot be interrupted.
func (s *Screen) readKeys() {
	b := make([]byte, 256)
	for {
		n, err := s.in.Read(b)
		for _, k := range parseKeys(b[:n]) {
			s.Keys <- k
		}
		if err != nil {
			close(s.Keys)
			return
		}
	}
}

// Size returns the terminal's size. One that does not say has 80 columns and 24 rows.
func (s *Screen) Size() (width, height int) {
	width, height, err := term.GetSize(int(s.out.Fd()))
	if err != nil || width <= 0 || height <= 0 {
		return 80, 24
	}
	return width, height
}

// Repaint forgets what the terminal shows.
func (s *Screen) Repaint() { s.shown = nil }

// Show writes the lines that differ from those that are there.
func (s *Screen) Show(lines []string) error {
	var b strings.Builder
	if s.shown == nil || len(s.shown) > len(lines) {
		b.WriteString("\x1b[2J")
		s.shown = nil
	}
	for i, line := range lines {
		if i < len(s.shown) && s.shown[i] == line {
			continue
		}
		b.WriteString("\x1b[")
		b.WriteString(strconv.Itoa(i + 1))
		// The erasure comes first: behind a line that fills the row, it would take the last column.
		b.WriteString(";1H\x1b[K")
		b.WriteString(line)
	}
	s.shown = append(s.shown[:0], lines...)
	if b.Len() == 0 {
		return nil
	}
	_, err := s.out.WriteString(b.String())
	return err
}
