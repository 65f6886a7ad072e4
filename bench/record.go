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

// Record is a long test of this project alone: what was done, what was seen, and where it is to
// stand.
type Record struct {
	Origin
	Test    string   `json:"test"`
	Text    string   `json:"text"` // what was done, a paragraph
	Facts   []Fact   `json:"facts"`
	Samples []Sample `json:"samples,omitempty"`
}

// Origin is when, where and with what a test of this project alone was made.
type Origin struct {
	Format  int       `json:"format"`
	Begun   time.Time `json:"begun"`
	Took    float64   `json:"took_seconds"`
	Machine Machine   `json:"machine"`
	Version string    `json:"version"`
}

func newOrigin(dir, version string) (Origin, error) {
	m, err := ThisMachine(dir)
	return Origin{Format: format, Begun: time.Now().Truncate(time.Second), Machine: m, Version: version}, err
}

// startTest tells the origin of a test of a system, and makes a folder below root for its data,
// which the caller removes.
func startTest(ctx context.Context, system System, root string) (o Origin, dir string, err error) {
	version, err := system.Version(ctx)
	if err != nil {
		return o, "", err
	}
	if root, err = filepath.Abs(root); err != nil {
		return o, "", err
	}
	if dir, err = os.MkdirTemp(root, ".bench-"); err != nil {
		return o, "", err
	}
	o, err = newOrigin(dir, version)
	return o, dir, err
}

// save writes a test as JSON and as a table into a folder, and returns the name without the ending.
func (o Origin) save(dir, test string, r interface{ WriteTable(io.Writer) error }) (string, error) {
	name := filepath.Join(dir, o.Begun.Format("2006-01-02-1504")+"-"+o.Machine.Slug()+"-"+test)
	return name, saveAs(name, r)
}

// Fact is something that was seen.
type Fact struct {
	Text  string  `json:"text"`
	Value float64 `json:"value"`
	Unit  Unit    `json:"unit,omitempty"`
	Goal  float64 `json:"bar,omitempty"` // at most so much; 0: no demand
}

// Sample is the server at a moment.
type Sample struct {
	At     float64 `json:"at_seconds"`
	Memory uint64  `json:"memory_bytes"`
	Cores  float64 `json:"cores"` // since the sample before
}

// startRecord makes the record of a test of a system, and its folder; see startTest.
func startRecord(ctx context.Context, system System, root, test, text string) (*Record, string, error) {
	o, dir, err := startTest(ctx, system, root)
	return &Record{Origin: o, Test: test, Text: text}, dir, err
}

func (r *Record) fact(text string, value float64, unit Unit, bar float64) {
	r.Facts = append(r.Facts, Fact{text, value, unit, bar})
}

// Missed are the facts beyond their bars.
func (r *Record) Missed() []Fact {
	var out []Fact
	for _, f := range r.Facts {
		if f.Goal > 0 && !(f.Value <= f.Goal) {
			out = append(out, f)
		}
	}
	return out
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

// Save writes the record as JSON and as a table into a folder, and returns the name without the
// ending.
func (r *Record) Save(dir string) (string, error) {
	for i := range r.Facts {
		if math.IsNaN(r.Facts[i].Value) {
			r.Facts[i].Value = -1 // JSON has no NaN
		}
	}
	return r.save(dir, r.Test, r)
}

// sampleServer samples a server until stop is closed, from a goroutine of its own; what it saw
// comes at the end.
func sampleServer(p *Process, every time.Duration, stop <-chan struct{}) <-chan []Sample {
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
