// What did a load come to, and which timeout has each call?

package loadgen

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"
)

// Result is the outcome of a load.
type Result struct {
	Scenario    string    `json:"scenario"`
	Target      string    `json:"target"`
	Loop        string    `json:"loop"`                 // closed or open
	AskedRate   float64   `json:"asked_rate,omitempty"` // of an open loop, operations a second
	Started     time.Time `json:"started_at"`           // start of the measurement
	Interrupted bool      `json:"interrupted"`

	Callers     int     `json:"callers"`
	Connections int     `json:"connections"`
	Sessions    int     `json:"sessions"`
	Keys        int     `json:"keys"`
	Skew        float64 `json:"skew"`
	Watchers    int     `json:"watchers"`
	DataSize    int     `json:"data_size"`
	WarmUpMS    float64 `json:"warm_up_ms"`
	DurationMS  float64 `json:"duration_ms"` // as asked for
	DeadlineMS  float64 `json:"deadline_ms"` // of each call; 0: none

	ElapsedMS  float64           `json:"elapsed_ms"` // from the end of the warm-up to the end of the last operation
	Operations uint64            `json:"operations"`
	Rate       float64           `json:"rate"` // operations a second
	Errors     map[string]uint64 `json:"errors"`

	Series     []Series   `json:"series"`
	Throughput Throughput `json:"throughput"`

	Own    OwnCost     `json:"own_cost"`
	Server *ServerCost `json:"server,omitempty"`
}

// Series are the durations of one kind.
type Series struct {
	Name   string  `json:"name"`
	Count  uint64  `json:"count"`
	MeanUS float64 `json:"mean_us"`
	MinUS  float64 `json:"min_us"`
	P50US  float64 `json:"p50_us"`
	P90US  float64 `json:"p90_us"`
	P99US  float64 `json:"p99_us"`
	P999US float64 `json:"p999_us"`
	MaxUS  float64 `json:"max_us"`

	hist *histogram
}

// At is the duration that p per cent, 0 to 100, are not above.
func (s *Series) At(p float64) time.Duration {
	if s.Count == 0 {
		return 0
	}
	return time.Duration(s.hist.at(p))
}

// Throughput over time.
type Throughput struct {
	SlotMS     float64  `json:"slot_ms"`
	Operations []uint32 `json:"operations"` // that ended, slot by slot
}

// OwnCost is the CPU that this process used in the run, the client library included.
type OwnCost struct {
	Cores             float64 `json:"cores"`
	CPUPerOperationUS float64 `json:"cpu_per_operation_us"`
	LateP99US         float64 `json:"late_p99_us,omitempty"` // of an open loop: how late its own timer was, which latencies include
}

func micros(ns float64) float64 { return ns / 1e3 }

func newSeries(name string, c *histogram) Series {
	s := Series{Name: name, Count: c.n, hist: c}
	if c.n == 0 {
		return s
	}
	s.MeanUS, s.MinUS, s.MaxUS = micros(c.sum/float64(c.n)), micros(float64(c.min)), micros(float64(c.max))
	for _, q := range []struct {
		to *float64
		p  float64
	}{{&s.P50US, 50}, {&s.P90US, 90}, {&s.P99US, 99}, {&s.P999US, 99.9}} {
		*q.to = micros(float64(s.At(q.p)))
	}
	return s
}

// gather merges the counts of all recorders.
func gather(c *Env, l *loop, rest *Recorder) *Result {
	cfg := &c.Config
	r := &Result{
		Scenario: cfg.Scenario.Name, Target: cfg.Target.Name(), Loop: "closed", AskedRate: l.rate,
		Callers: len(l.callers), Connections: len(c.pool.conns), Sessions: c.sessions, Keys: c.keys,
		Skew: cfg.Skew, Watchers: c.watchers, DataSize: cfg.DataSize,
		WarmUpMS: cfg.WarmUp.Seconds() * 1e3, DurationMS: cfg.Duration.Seconds() * 1e3,
		DeadlineMS: cfg.Deadline.Seconds() * 1e3,
		Errors:     map[string]uint64{}, Throughput: Throughput{SlotMS: float64(c.span.slot) / 1e6},
	}
	all := append([]*Recorder{rest}, l.recs...)
	for _, x := range c.recorders.recs {
		x.mu.Lock()
		defer x.mu.Unlock()
		all = append(all, x.Recorder)
	}
	sums := make([]histogram, len(cfg.Scenario.Series))
	var service histogram
	last := int64(0)
	for _, x := range all {
		x.finish()
		for i := range x.hists {
			sums[i].merge(&x.hists[i])
		}
		service.merge(&x.late)
		for code, n := range x.codes {
			r.Errors[code] += n
		}
		for i, n := range x.slots {
			for len(r.Throughput.Operations) <= i {
				r.Throughput.Operations = append(r.Throughput.Operations, 0)
			}
			r.Throughput.Operations[i] += n
		}
		r.Operations += x.ops
		last = max(last, x.last)
	}
	if l.unstarted > 0 {
		r.Errors["not started"] += l.unstarted
	}
	from := c.span.from.Load()
	end := cmp.Or(last, max(from, c.span.until))
	r.ElapsedMS = float64(end-from) / 1e6
	if r.ElapsedMS > 0 {
		r.Rate = float64(r.Operations) / r.ElapsedMS * 1e3
	}
	for i, name := range cfg.Scenario.Series {
		r.Series = append(r.Series, newSeries(name, &sums[i]))
	}
	if l.rate > 0 {
		r.Loop = "open"
		r.Series = append(r.Series, newSeries("from-actual-start", &service))
		r.Own.LateP99US = micros(float64(l.timerDelay.at(99)))
	}
	return r
}

func (r *Result) elapsed() time.Duration { return time.Duration(r.ElapsedMS * 1e6) }

// ErrorCount is the number of all errors.
func (r *Result) ErrorCount() (n uint64) {
	for _, x := range r.Errors {
		n += x
	}
	return n
}

// codes of the errors, the most frequent first.
func (r *Result) codes() []string {
	return slices.SortedFunc(maps.Keys(r.Errors), func(a, b string) int {
		return cmp.Or(cmp.Compare(r.Errors[b], r.Errors[a]), cmp.Compare(a, b))
	})
}

// call gives one call to the server its context: a caller's own, with the deadline of the load.
func (e *Env) call(ctx context.Context) (context.Context, context.CancelFunc) {
	if e.Deadline == 0 {
		return ctx, noDeadline
	}
	return context.WithTimeout(ctx, e.Deadline)
}

func noDeadline() {}

func (e *Env) acquire(ctx context.Context, a Acquirer, name string) (Lease, error) {
	ctx, cancel := e.call(ctx)
	defer cancel()
	return a.Acquire(ctx, name)
}

func (e *Env) release(ctx context.Context, l Lease) error {
	ctx, cancel := e.call(ctx)
	defer cancel()
	return l.Release(ctx)
}

func (e *Env) read(ctx context.Context, r Reader, name string) error {
	ctx, cancel := e.call(ctx)
	defer cancel()
	return r.Read(ctx, name)
}

func (e *Env) write(ctx context.Context, s CanStore, name string, data []byte) error {
	ctx, cancel := e.call(ctx)
	defer cancel()
	return s.Write(ctx, name, data)
}

func (e *Env) open(ctx context.Context) (Conn, error) {
	ctx, cancel := e.call(ctx)
	defer cancel()
	return e.Target.Open(ctx)
}

func (e *Env) startSession(ctx context.Context, conn Conn) (Session, error) {
	ctx, cancel := e.call(ctx)
	defer cancel()
	return conn.Session(ctx)
}

func (e *Env) endSession(ctx context.Context, s Session) error {
	ctx, cancel := e.call(ctx)
	defer cancel()
	return s.Close(ctx)
}
