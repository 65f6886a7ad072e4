// How is a measurement kept that is no comparison in rounds?

package bench

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Record is a measurement other than a comparison in rounds: the procedure and the observations.
type Record struct {
	Begun   time.Time
	Took    time.Duration
	Machine Machine
	Version string
	Test    string
	Text    string // the procedure, a paragraph
	Facts   []Fact
}

// Fact is an observation.
type Fact struct {
	Text  string
	Value float64
	Unit  Unit
}

func (r *Record) fact(text string, value float64, unit Unit) {
	r.Facts = append(r.Facts, Fact{text, value, unit})
}

// longRun is a measurement that is being made.
type longRun struct {
	*Record
	dir string // removed after it
	log io.Writer
}

// logf writes a line to a log, unless that is nil.
func logf(log io.Writer, form string, args ...any) {
	if log != nil {
		fmt.Fprintf(log, form+"\n", args...)
	}
}

// runLong makes a measurement of systems, with its data in a folder below root.
func runLong(
	ctx context.Context, test, text string, systems []System, root string, log io.Writer, run func(l *longRun) error,
) (*Record, error) {
	var versions []string
	for _, s := range systems {
		v, err := s.Version(ctx)
		if err != nil {
			return nil, err
		}
		versions = append(versions, s.Name()+": "+v)
	}
	root, err := filepath.Abs(root)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(root, ".bench-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	r := &Record{Begun: time.Now().Truncate(time.Second), Version: strings.Join(versions, "; "), Test: test,
		Text: text}
	if r.Machine, err = ThisMachine(dir); err != nil {
		return nil, err
	}
	if err := run(&longRun{r, dir, log}); err != nil {
		return nil, err
	}
	r.Took = time.Since(r.Begun)
	return r, nil
}

// WriteTable writes the record for people.
func (r *Record) WriteTable(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "# %s of %s\n\n%s\n\n%s; %s; %s minutes.\n\n| | |\n|---|---|\n",
		r.Test, r.Begun.Format("2006-01-02 15:04"), r.Text, r.Version, r.Machine, digits(r.Took.Minutes()))
	for _, f := range r.Facts {
		fmt.Fprintf(&b, "| %s | %s |\n", f.Text, amount(f.Value, f.Unit))
	}
	_, err := io.WriteString(w, b.String())
	return err
}
