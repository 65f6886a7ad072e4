package main

import (
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unicode/utf8"

	"golang.org/x/term"
)

// screen shows lines on a whole terminal, and gives it back as it was.
type screen struct {
	out     *os.File
	in      *os.File // nil: no keys are read
	former  *term.State
	shown   []string // the lines that the terminal has; nil: not known
	resized chan os.Signal
	keys    chan key
}

// Modes of the terminal: the other screen, no cursor, lines that end at the edge; and back.
const (
	enterScreen = "\x1b[?1049h\x1b[?25l\x1b[?7l\x1b[2J"
	leaveScreen = "\x1b[?7h\x1b[?25h\x1b[?1049l"
)

// newScreen takes a terminal over. Keys are read if in is a terminal, too. close gives it back.
func newScreen(out *os.File, in any) (*screen, error) {
	s := &screen{out: out, resized: make(chan os.Signal, 1), keys: make(chan key, 64)}
	if f, ok := in.(*os.File); ok && isTerminal(f) {
		s.in = f
	}
	if err := s.enter(); err != nil {
		return nil, err
	}
	signal.Notify(s.resized, syscall.SIGWINCH)
	if s.in != nil {
		go s.readKeys()
	}
	return s, nil
}

func (s *screen) enter() (err error) {
	if s.in != nil {
		if s.former, err = term.MakeRaw(int(s.in.Fd())); err != nil {
			return err
		}
	}
	s.shown = nil
	_, err = s.out.WriteString(enterScreen)
	return err
}

func (s *screen) leave() {
	_, _ = s.out.WriteString(leaveScreen)
	if s.former != nil {
		_ = term.Restore(int(s.in.Fd()), s.former)
		s.former = nil
	}
}

func (s *screen) close() {
	signal.Stop(s.resized)
	s.leave()
}

// suspend stops this process until it is continued, as ^Z does outside of a screen.
func (s *screen) suspend() error {
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
func (s *screen) readKeys() {
	b := make([]byte, 256)
	for {
		n, err := s.in.Read(b)
		for _, k := range parseKeys(b[:n]) {
			s.keys <- k
		}
		if err != nil {
			close(s.keys)
			return
		}
	}
}

// size is the terminal's. One that does not say has 80 columns and 24 rows.
func (s *screen) size() (width, height int) {
	width, height, err := term.GetSize(int(s.out.Fd()))
	if err != nil || width <= 0 || height <= 0 {
		return 80, 24
	}
	return width, height
}

// repaint forgets what the terminal shows.
func (s *screen) repaint() { s.shown = nil }

// show writes the lines that differ from those that are there.
func (s *screen) show(lines []string) error {
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

// fit cuts a text to so many columns, or fills it up. What is cut ends with an ellipsis.
func fit(text string, width int) string {
	n := utf8.RuneCountInString(text)
	switch {
	case width <= 0:
		return ""
	case n > width && width == 1:
		return "…"
	case n > width:
		return string([]rune(text)[:width-1]) + "…"
	}
	return text + strings.Repeat(" ", width-n)
}

// fitRight is fit with the blanks in front.
func fitRight(text string, width int) string {
	if n := utf8.RuneCountInString(text); n < width {
		return strings.Repeat(" ", width-n) + text
	}
	return fit(text, width)
}
