package bench

import (
	"context"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/signalbox-dev/signalbox/loadgen"
)

// Trace is where the time of requests goes: of one caller alone, and at several rates.
type Trace struct {
	Origin
	Others float64    `json:"others_cores"` // what other programs used: times need a quiet machine, counts do not
	Loads  []string   `json:"loads"`
	Rows   []TraceRow `json:"rows"`
	Notes  []string   `json:"notes,omitempty"`
}

// TraceRow is one quantity under each load.
type TraceRow struct {
	Section string `json:"section"`
	Text    string `json:"text"`
	Unit    Unit   `json:"unit,omitempty"`
	Values  Rounds `json:"values"`
}

// TraceConfig is the size of a trace.
type TraceConfig struct {
	Length, WarmUp time.Duration // of each of the two looks at a load
	Rates          []int         // pairs/s, beside one caller alone
	Callers        int           // at the rates
}

// DefaultTrace has all rates of P4 but the lowest.
func DefaultTrace() TraceConfig {
	return TraceConfig{Length: 4 * time.Second, WarmUp: 2 * time.Second, Rates: rates[1:], Callers: 256}
}

// RunTrace runs an instance under each load twice. The first look measures without disturbing. The
// second one counts system calls and takes profiles.
func RunTrace(ctx context.Context, system *SignalboxSystem, c TraceConfig, root string, log io.Writer) (*Trace, error) {
	origin, dir, err := startTest(ctx, system, root)
	defer os.RemoveAll(dir)
	if err != nil {
		return nil, err
	}
	t := &tracer{
		cfg: c, dir: dir, log: log,
		trace: &Trace{Origin: origin, Loads: []string{"one caller alone"}},
	}
	for _, rate := range c.Rates {
		t.trace.Loads = append(t.trace.Loads, loadgen.Thousands(fmt.Sprint(rate))+" pairs/s")
	}
	home := filepath.Join(dir, "server")
	if err := os.Mkdir(home, 0o700); err != nil {
		return nil, err
	}
	if t.server, err = system.startInstance(ctx, home); err != nil {
		return nil, err
	}
	defer t.server.Stop()
	began, usedBefore, ownBefore := time.Now(), machineCPU(), ownCPU()
	serverBefore, err := t.server.Usage()
	if err != nil {
		return nil, err
	}
	for i := range t.trace.Loads {
		rate := 0
		if i > 0 {
			rate = c.Rates[i-1]
		}
		if err := t.traceLoad(ctx, i, rate); err != nil {
			return nil, fmt.Errorf("%s: %w", t.trace.Loads[i], err)
		}
	}
	t.trace.Took = time.Since(began).Seconds()
	server, err := t.server.Usage()
	if err != nil {
		return nil, err
	}
	if used := machineCPU(); used > 0 {
		own := ownCPU() - ownBefore + server.CPU - serverBefore.CPU
		t.trace.Others = max(0, (used-usedBefore-own).Seconds()/t.trace.Took)
	}
	return t.trace, nil
}

type tracer struct {
	cfg    TraceConfig
	trace  *Trace
	server *instance
	dir    string
	log    io.Writer

	load     int     // whose column is filled
	ownCPU   float64 // of a pair, us
	serveCPU float64
}

// set puts a value into the column of the present load. Rows are in the order of their first value.
func (t *tracer) set(section, text string, unit Unit, value float64) {
	rows := t.trace.Rows
	last := len(rows)
	for i, r := range rows {
		if r.Section == section {
			if last = i + 1; r.Text == text {
				r.Values[t.load] = value
				return
			}
		}
	}
	row := TraceRow{Section: section, Text: text, Unit: unit, Values: make(Rounds, len(t.trace.Loads))}
	for i := range row.Values {
		row.Values[i] = math.NaN()
	}
	row.Values[t.load] = value
	t.trace.Rows = append(rows[:last:last], append([]TraceRow{row}, rows[last:]...)...)
}

// note adds a sentence once.
func (t *tracer) note(text string) {
	if !slices.Contains(t.trace.Notes, text) {
		t.trace.Notes = append(t.trace.Notes, text)
	}
}

func (t *tracer) traceLoad(ctx context.Context, load, rate int) error {
	t.load = load
	cfg := loadgen.Config{Target: t.server.target(), Callers: 1, Keys: 1, Connections: 1,
		Deadline: callDeadline, WarmUp: t.cfg.WarmUp}
	if rate > 0 {
		cfg.Callers, cfg.Keys, cfg.Connections, cfg.Rate = t.cfg.Callers, 0, RateConnections, float64(rate)
	}
	var err error
	if cfg.Scenario, err = loadgen.Find("lock-pairs"); err != nil {
		return err
	}
	var before, after look
	r, err := t.run(ctx, cfg, func(ctx context.Context) (err error) {
		if before, err = t.look(ctx); err == nil {
			if err = pause(ctx, t.cfg.Length); err == nil {
				after, err = t.look(ctx)
			}
		}
		return err
	})
	if err != nil {
		return err
	}
	t.times(r, before, after)
	looks := []func(context.Context) error{t.countCalls, t.profile}
	if rate == 0 {
		looks = append(looks, t.follow)
	}
	_, err = t.run(ctx, cfg, func(ctx context.Context) error {
		for _, look := range looks {
			if err := look(ctx); err != nil {
				return err
			}
		}
		return nil
	})
	if t.log != nil && err == nil {
		fmt.Fprintf(t.log, "%s: done\n", t.trace.Loads[load])
	}
	return err
}

// run puts a load on the server for as long as during takes, which begins after the warm-up.
func (t *tracer) run(ctx context.Context, cfg loadgen.Config, during func(ctx context.Context) error) (*loadgen.Result, error) {
	load, stop := context.WithCancel(ctx)
	defer stop()
	var once sync.Once
	done := make(chan error, 1)
	cfg.Duration = 10 * time.Minute // it is interrupted before
	cfg.Progress = func(p loadgen.Progress) {
		if !p.Preparing && !p.WarmingUp && p.Operations > 0 { // a load that ends before its first answer fails
			once.Do(func() {
				go func() {
					done <- during(ctx)
					stop()
				}()
			})
		}
	}
	r, err := loadgen.Run(load, cfg)
	if err != nil {
		return nil, err
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if err := <-done; err != nil {
		return nil, err
	}
	if n := r.ErrorCount(); n*100 > r.Operations {
		return nil, fmt.Errorf("%d errors beside %d answers: %s", n, r.Operations, codes(r))
	}
	return r, nil
}

// look is what was used and done until a moment.
type look struct {
	at           time.Time
	server, load processLook
	metrics      map[string]float64
}

type processLook struct {
	cpu      time.Duration
	switches map[string]switches // by thread
}

type switches struct{ voluntary, involuntary float64 }

// since adds up what the threads have done since an earlier look. What a thread did that has ended
// in between is not known.
func (l processLook) since(before processLook) (s switches) {
	for thread, now := range l.switches {
		s.voluntary += now.voluntary - before.switches[thread].voluntary
		s.involuntary += now.involuntary - before.switches[thread].involuntary
	}
	return s
}

func (t *tracer) look(ctx context.Context) (l look, err error) {
	l.at = time.Now()
	if l.server, err = lookAt(t.server.Process().ID()); err != nil {
		return l, err
	}
	if l.load, err = lookAt(os.Getpid()); err != nil {
		return l, err
	}
	l.metrics, _, err = t.metrics(ctx)
	return l, err
}

func lookAt(id int) (l processLook, err error) {
	if l.cpu, err = processCPU(id); err != nil {
		return l, err
	}
	l.switches = map[string]switches{}
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", id))
	if err != nil {
		return l, err
	}
	for _, name := range threads {
		b, err := os.ReadFile(name)
		if err != nil {
			continue // it has just ended
		}
		var s switches
		for line := range strings.Lines(string(b)) {
			_, _ = fmt.Sscanf(line, "voluntary_ctxt_switches: %f", &s.voluntary) // no other line fits
			_, _ = fmt.Sscanf(line, "nonvoluntary_ctxt_switches: %f", &s.involuntary)
		}
		l.switches[name] = s
	}
	return l, nil
}

// times fills the rows of the first look.
func (t *tracer) times(r *loadgen.Result, before, after look) {
	seconds := after.at.Sub(before.at).Seconds()
	pair := r.Series[0]
	begun := pair
	if len(r.Series) > 1 {
		begun = r.Series[1]
	}
	mean := func(metric string) float64 {
		n := after.metrics[metric+"_count"] - before.metrics[metric+"_count"]
		return (after.metrics[metric+"_sum"] - before.metrics[metric+"_sum"]) / n
	}
	const times = "Time"
	t.set(times, "a pair, p50", Microseconds, pair.P50US)
	t.set(times, "a pair, p99", Microseconds, pair.P99US)
	t.set(times, "a pair, mean", Microseconds, pair.MeanUS)
	t.set(times, "of it, until one of the callers begins", Microseconds, pair.MeanUS-begun.MeanUS)
	t.set(times, "a call, mean: half of the rest", Microseconds, begun.MeanUS/2)
	t.set(times, "of it, from decoded to applied (the first call of each batch)",
		Microseconds, 1e6*mean("signalbox_batch_seconds"))
	t.set(times, "a write to the log, synced or not", Microseconds, 1e6*mean("signalbox_log_write_seconds"))

	// The load ran longer than the time between the two looks, so its own rate is of another
	// window.
	pairs := (after.metrics["signalbox_batch_commands_sum"] - before.metrics["signalbox_batch_commands_sum"]) / 2
	count := func(metric string) float64 { return after.metrics[metric+"_count"] - before.metrics[metric+"_count"] }
	t.serveCPU = (after.server.cpu - before.server.cpu).Seconds() * 1e6 / pairs
	t.ownCPU = (after.load.cpu - before.load.cpu).Seconds() * 1e6 / pairs
	const counts = "Counts"
	t.set(counts, "pairs/s", PerSecond, pairs/seconds)
	batches := count("signalbox_batch_commands")
	t.set(counts, "batches/s", PerSecond, batches/seconds)
	t.set(counts, "commands in a batch", "", mean("signalbox_batch_commands"))
	t.set(counts, "writes to the log in a pair", "", count("signalbox_log_write_seconds")/pairs)
	server := after.server.since(before.server)
	for _, x := range []struct {
		who string
		switches
	}{{"server", server}, {"load", after.load.since(before.load)}} {
		t.set(counts, x.who+": thread switches in a pair, voluntary", "", x.voluntary/pairs)
		t.set(counts, x.who+": thread switches in a pair, involuntary", "", x.involuntary/pairs)
	}
	t.set(counts, "server: thread switches in a batch", "", (server.voluntary+server.involuntary)/batches)
}

// WriteTable writes the trace for people.
func (r *Trace) WriteTable(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "# Trace of %s\n\n%s; %s; %s minutes. Other programs used %s cores.\n",
		r.Begun.Format("2006-01-02 15:04"), r.Version, r.Machine, digits(r.Took/60), digits(r.Others))
	section := ""
	for _, row := range r.Rows {
		if row.Section != section {
			section = row.Section
			fmt.Fprintf(&b, "\n| %s | %s |\n|---|%s\n", section, strings.Join(r.Loads, " | "),
				strings.Repeat("---|", len(r.Loads)))
		}
		b.WriteString("| " + row.Text + " |")
		for _, v := range row.Values {
			cell := " |"
			if !math.IsNaN(v) {
				cell = " " + amount(v, row.Unit) + " |"
			}
			b.WriteString(cell)
		}
		b.WriteString("\n")
	}
	for _, n := range r.Notes {
		fmt.Fprintf(&b, "\n%s\n", n)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// Save writes the trace as JSON and as a table into a folder, and returns the name without the
// ending.
func (r *Trace) Save(dir string) (string, error) {
	return r.save(dir, "trace", r)
}
