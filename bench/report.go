// What did a comparison find, and in which files is it?

package bench

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/signalbox-dev/signalbox/server/file"
)

// format of the JSON file; a reader refuses others.
const format = 1

// Report has the results of a run.
type Report struct {
	Format int       `json:"format"`
	Begun  time.Time `json:"begun"`
	Took   float64   `json:"took_seconds"`
	// other programs' use during the run; anything but next to nothing spoils the figures
	Others       float64           `json:"others_cores"`
	Machine      Machine           `json:"machine"`
	Versions     map[string]string `json:"versions"` // by subject
	Rounds       int               `json:"rounds"`
	Seconds      float64           `json:"seconds"` // of one measurement
	Quick        bool              `json:"quick,omitempty"`
	Missing      []Missing         `json:"missing,omitempty"`
	Failures     []Failure         `json:"failures,omitempty"`
	Notes        []string          `json:"notes,omitempty"`
	Measurements measurements      `json:"figures"`
}

// Missing is a system that was not measured.
type Missing struct {
	Subject string `json:"subject"`
	Why     string `json:"why"` // and the program to install
}

// Failure is a measurement that gave no figure.
type Failure struct {
	Subject   string `json:"subject"`
	Benchmark string `json:"block"`
	Round     int    `json:"round"`
	Why       string `json:"why"`
}

// Err reports whether something failed: a report with failures is written, but is no comparison.
func (r *Report) Err() error {
	if len(r.Failures) == 0 {
		return nil
	}
	f := r.Failures[0]
	return fmt.Errorf("%d measurements failed; the first is %s of %s in round %d: %s",
		len(r.Failures), f.Benchmark, f.Subject, f.Round+1, f.Why)
}

// failures has a line for each system and benchmark of which measurements failed; empty: none.
func (r *Report) failures() string {
	type visit struct{ benchmark, subject string }
	rounds := map[visit]int{}
	var order []visit
	for _, f := range r.Failures {
		v := visit{f.Benchmark, f.Subject}
		if rounds[v]++; rounds[v] == 1 {
			order = append(order, v)
		}
	}
	var b strings.Builder
	for _, v := range order {
		fmt.Fprintf(&b, "- benchmark `%s` of %s, in %d of %d rounds\n", v.benchmark, v.subject, rounds[v], r.Rounds)
	}
	return b.String()
}

// Name of the report's files, without an ending: when and on what machine.
func (r *Report) Name() string {
	kind := ""
	if r.Quick {
		kind = "-quick"
	}
	return r.Begun.Format("2006-01-02-1504") + "-" + r.Machine.Slug() + kind
}

// Save writes the report as JSON and as a table into a folder, and returns the name of the JSON.
func (r *Report) Save(dir string) (string, error) {
	name := filepath.Join(dir, r.Name())
	return name + ".json", save(map[string]func(io.Writer) error{name + ".json": r.WriteJSON, name + ".md": r.WriteTable})
}

// save writes files that others may read, each in the place of a regular one or of none. All are
// made before any is written.
func save(files map[string]func(io.Writer) error) error {
	made := map[string][]byte{}
	for name, write := range files {
		var b bytes.Buffer
		if err := errors.Join(write(&b), file.CheckRegular(name)); err != nil {
			return err
		}
		made[name] = b.Bytes()
	}
	for name, b := range made {
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(name, b, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// WriteJSON writes the report for programs.
func (r *Report) WriteJSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", " ")
	return e.Encode(r)
}

// WriteBenchmarks writes each value of each round in Go's benchmark format, for benchstat: the
// metric is the benchmark's name, the system its key "system".
func (r *Report) WriteBenchmarks(w io.Writer) error {
	var b bytes.Buffer
	for _, m := range r.Measurements {
		for _, v := range m.Values {
			if !math.IsNaN(v) && !math.IsInf(v, 0) {
				fmt.Fprintf(&b, "Benchmark/%s/system=%s 1 %s %s\n", m.Metric, slug(m.Subject), plain(v), m.Unit)
			}
		}
	}
	_, err := w.Write(b.Bytes())
	return err
}

// Read reads a report's JSON file.
func Read(name string) (*Report, error) {
	b, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	r := &Report{}
	if err := json.Unmarshal(b, r); err != nil {
		return nil, fmt.Errorf("%s is no report: %w", name, err)
	}
	if r.Format != format {
		return nil, fmt.Errorf("%s has format %d; this program reads format %d", name, r.Format, format)
	}
	return r, nil
}
