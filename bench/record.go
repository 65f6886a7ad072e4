package bench

import (
	"context"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Record is a long test of this project alone: when, where and with what it was made, what was done,
// what was seen, and where it is to stand.
type Record struct {
	Begun   time.Time
	Took    float64 // seconds
	Machine Machine
	Version string
	Test    string
	Text    string // what was done, a paragraph
	Facts   []Fact
	Samples []Sample
}

// Fact is something that was seen.
type Fact struct {
	Text  string
	Value float64
	Unit  Unit
	Goal  float64 // at most so much; 0: no demand
}

// Sample is the server at a moment.
type Sample struct {
	At     float64 // seconds
	Memory uint64  // bytes
	Cores  float64 // since the sample before
}

// newRecord makes the record of a test whose data is below a folder.
func newRecord(dir, version, test, text string) (*Record, error) {
	m, err := ThisMachine(dir)
	return &Record{Begun: time.Now().Truncate(time.Second), Machine: m, Version: version, Test: test, Text: text}, err
}

// longTest is a test of this project alone that takes minutes or hours.
type longTest interface {
	// text says what is done: a paragraph.
	text() string

	run(ctx context.Context, l *longRun) error
}

// longRun is a run of a longTest.
type longRun struct {
	*Record
	system *SignalboxSystem
	dir    string // removed after it
	log    io.Writer
}

// logf writes a line to a log, unless that is nil.
func logf(log io.Writer, form string, args ...any) {
	if log != nil {
		fmt.Fprintf(log, form+"\n", args...)
	}
}

// runLong runs a test, with its data in a folder below root.
func runLong(ctx context.Context, name string, t longTest, system *SignalboxSystem, root string, log io.Writer) (*Record, error) {
	return runRecorded(ctx, name, t.text(), system, root, func(r *Record, dir string) error {
		return t.run(ctx, &longRun{r, system, dir, log})
	})
}

// runRecorded records a test of a system, with its data in a folder below root.
func runRecorded(
	ctx context.Context, name, text string, system System, root string, run func(r *Record, dir string) error,
) (*Record, error) {
	version, err := system.Version(ctx)
	if err != nil {
		return nil, err
	}
	if root, err = filepath.Abs(root); err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(root, ".bench-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	r, err := newRecord(dir, version, name, text)
	if err != nil {
		return nil, err
	}
	began := time.Now()
	if err := run(r, dir); err != nil {
		return nil, err
	}
	r.Took = time.Since(began).Seconds()
	return r, nil
}

func (r *Record) fact(text string, value float64, unit Unit, bar float64) {
	r.Facts = append(r.Facts, Fact{text, value, unit, bar})
}

// WriteTable writes the record for people.
func (r *Record) WriteTable(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "# %s of %s\n\n%s\n\n%s; %s; %s minutes.\n\n| | | bar | |\n|---|---|---|---|\n",
		r.Test, r.Begun.Format("2006-01-02 15:04"), r.Text, r.Version, r.Machine, digits(r.Took/60))
	for _, f := range r.Facts {
		bar, word := "", ""
		if f.Goal > 0 {
			bar, word = "<= "+amount(f.Goal, f.Unit), "met"
			switch {
			case math.IsNaN(f.Value):
				word = "not measured"
			case f.Value > f.Goal:
				word = "**missed by " + percent(f.Value/f.Goal-1) + "**"
			}
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", f.Text, amount(f.Value, f.Unit), bar, word)
	}
	if len(r.Samples) > 0 {
		b.WriteString("\n| minute | server memory | server cores |\n|---|---|---|\n")
		for minute := 0; ; minute++ {
			var memory, cores []float64
			for _, s := range r.Samples {
				if int(s.At/60) == minute {
					memory, cores = append(memory, float64(s.Memory)), append(cores, s.Cores)
				}
			}
			if len(memory) == 0 {
				break
			}
			fmt.Fprintf(&b, "| %d | %s | %s |\n", minute+1, amount(StatOf(memory).Median, Bytes), digits(StatOf(cores).Median))
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// Save writes the table into a folder, and returns the file's name.
func (r *Record) Save(dir string) (string, error) {
	name := filepath.Join(dir, r.Begun.Format("2006-01-02-1504")+"-"+r.Machine.Slug()+"-"+r.Test+".md")
	return name, save(map[string]func(io.Writer) error{name: r.WriteTable})
}

// sampleServer samples a server until stop is closed, from a goroutine of its own; what it saw
// comes at the end.
func sampleServer(p interface{ Usage() (Usage, error) }, every time.Duration, stop <-chan struct{}) <-chan []Sample {
	out := make(chan []Sample, 1)
	go func() {
		var list []Sample
		begun := time.Now()
		last, lastAt := time.Duration(-1), begun
		t := time.NewTicker(every)
		defer t.Stop()
		for {
			if u, err := p.Usage(); err == nil {
				now := time.Now()
				if last >= 0 {
					list = append(list,
						Sample{At: now.Sub(begun).Seconds(), Memory: u.Resident,
							Cores: (u.CPU - last).Seconds() / now.Sub(lastAt).Seconds()})
				}
				last, lastAt = u.CPU, now
			}
			select {
			case <-t.C:
			case <-stop:
				out <- list
				return
			}
		}
	}()
	return out
}
