package bench

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/signalbox-dev/signalbox/loadgen"
)

// Goal is a required ratio of two operands: at least, or at most, Factor.
type Goal struct {
	ID        string
	Text      string // for people
	Condition string // for people
	Ours      Operand
	Other     Operand // of no figures: the demand is Factor in the figure's own unit
	AtMost    bool
	Always    bool // in each round, not by the median
	Factor    float64
}

// Operand is one or several figures of one system.
type Operand struct {
	Subject string
	Metrics []string
	Pick    func(values []float64) float64 // of several works in one round; nil: there is one
	Times   float64                        // 0 is 1
}

func operand(subject string, works ...string) Operand {
	return Operand{Subject: subject, Metrics: works}
}

func (s Operand) times(n float64) Operand { s.Times = n; return s }

func (s Operand) pick(f func([]float64) float64) Operand { s.Pick = f; return s }

// values by round; nil when a figure is missing.
func (s Operand) values(f measurements) []float64 {
	var columns [][]float64
	for _, w := range s.Metrics {
		x := f.find(w, s.Subject)
		if x == nil {
			return nil
		}
		columns = append(columns, x.Values)
	}
	if len(columns) == 0 {
		return nil
	}
	var out []float64
	for round := range columns[0] {
		var row []float64
		for _, c := range columns {
			if round < len(c) && !math.IsNaN(c[round]) {
				row = append(row, c[round])
			}
		}
		v := math.NaN()
		switch {
		case len(row) < len(columns):
		case s.Pick != nil:
			v = s.Pick(row)
		default:
			v = row[0]
		}
		if s.Times != 0 {
			v *= s.Times
		}
		out = append(out, v)
	}
	return out
}

var shardMetrics = []string{"shards-1", "shards-4", "shards-16", "shards-64"}
var nameMetrics = []string{"names-few", "names-many"}

// Goals are where this project is to stand. The figures are ratios of one run, so that they
// hold on other machines.
var Goals = slices.Concat(
	bars("P1", "pairs/s, 1,024 callers over few connections", "pairs-1024",
		atLeast(20, Etcd, "etcd"), atLeast(10, ZooKeeper, "ZooKeeper"), atLeast(1.5, Rueidis, "Redis through rueidis")),
	[]Goal{{ID: "P2", Text: "pairs/s, 256 callers with a connection each; two messages a pair",
		Condition: ">= 0.5 x the messages of a bare gnet echo",
		Ours:      operand(Signalbox, "pairs-256").times(2), Other: operand(Echo, "echo-256"), Factor: 0.5}},
	bars("P2", "pairs/s, 256 callers with a connection each", "pairs-256", atLeast(1, GoRedis, "Redis through go-redis")),
	[]Goal{{ID: "P3", Text: "a pair of one caller alone, p50", Condition: "<= 1.15 x two proposals of bare dragonboat",
		Ours: operand(Signalbox, "pair-1"), Other: operand(Dragonboat, "proposal-1").times(2), AtMost: true, Factor: 1.15}},
	bars("P3", "a pair of one caller alone, p50", "pair-1", atMost(1.1, GoRedis, "Redis through go-redis")),
	rateGoals(),
	[]Goal{{ID: "P5", Text: "hand-offs/s, 64 contenders",
		Condition: ">= 0.8 x proposals/s of bare dragonboat, one after the other",
		Ours:      operand(Signalbox, "handoffs-64"), Other: operand(Dragonboat, "proposal-1-rate"), Factor: 0.8}},
	bars("P5", "hand-offs/s, 64 contenders", "handoffs-64", atLeast(4, Etcd, "etcd"),
		atLeast(1, GoRedis, "Redis with a blocking list")),
	bars("P6", "STRICT describes/s, 256 callers", "strict-256",
		atLeast(5, Etcd, "etcd's linearizable reads"), atLeast(1, Rueidis, "Redis GET through rueidis")),
	bars("P6", "RELAXED describes/s, 256 callers", "relaxed-256",
		atLeast(5, Etcd, "etcd's serializable reads"), atLeast(1, Rueidis, "Redis GET through rueidis")),
	bars("P7", "a change to 5,000 watchers over few connections, p99", "watch-5000-p99",
		atMost(0.2, Etcd, "etcd"), atMost(1, GoRedis, "Redis publish")),
	bars("P7", "a change to 20,000 watchers over few connections, p99", "watch-20000-p99",
		atMost(0.2, Etcd, "etcd"), atMost(1, GoRedis, "Redis publish")),
	bars("P7", "a change to 5,000 watchers with a connection each, p99", "each-5000-p99",
		atMost(0.2, Etcd, "etcd"), atMost(1, GoRedis, "Redis publish")),
	bars("P7", "a change to 20,000 watchers with a connection each, p99", "each-20000-p99", atMost(1, GoRedis, "Redis publish")),
	bars("P8", "server memory per idle session, connection of its own", "idle-own-memory", within(4<<10, "4 KB")),
	bars("P8", "server memory per idle session, shared connections", "idle-shared-memory", within(512, "0.5 KB")),
	bars("P9", "server CPU per idle session and second, connection of its own", "idle-own-cpu", within(5, "5 us")),
	bars("P9", "CPU per second of a server that nobody uses", "empty-cpu", within(2000, "2 ms")),
	bars("P10", "pairs/s, 1,024 callers, three servers on this machine", "three-1024",
		atLeast(12, Etcd, "etcd's three"), atLeast(7, ZooKeeper, "ZooKeeper's three")),
	bars("P10", "a pair of one caller alone, p50, three servers", "three-pair-1", atMost(0.8, Etcd, "etcd's three")),
	bars("P10", "hand-offs/s, 64 contenders, three servers", "three-handoffs-64", atLeast(4, Etcd, "etcd's three")),
	bars("P10", "STRICT describes/s, 256 callers, three servers", "three-strict-256", atLeast(6, Etcd, "etcd's three")),
	[]Goal{
		{ID: "P11", Text: "pairs per CPU second, the worst of 1, 4, 16, 64 shards against the best", Condition: ">= 0.85 x",
			Ours:  operand(Signalbox, shardMetrics...).pick(slices.Min),
			Other: operand(Signalbox, shardMetrics...).pick(slices.Max), Factor: 0.85},
		{ID: "P11",
			Text:      "pairs per CPU second, the worse of 1 thousand and 1 million semaphores against the better",
			Condition: ">= 0.85 x",
			Ours:      operand(Signalbox, nameMetrics...).pick(slices.Min),
			Other:     operand(Signalbox, nameMetrics...).pick(slices.Max), Factor: 0.85},
	},
	bars("P14", "sessions started/s, a new connection for each", "starts", atLeast(1, GoRedis, "Redis, connect and SET")),
	bars("P14", "server CPU of such a start", "starts-cpu", atMost(1.5, GoRedis, "Redis")),
)

// rateGoals are those of P4.
func rateGoals() []Goal {
	var list []Goal
	for _, rate := range rates {
		at := " of a pair at " + loadgen.Thousands(fmt.Sprint(rate)) + "/s"
		as := atMost(1, Rueidis, "Redis through rueidis")
		latency := []demand{as}
		if rate == 4000 {
			latency = append(latency, atMost(0.2, Etcd, "etcd"), atMost(0.2, ZooKeeper, "ZooKeeper"))
		}
		list = append(list, bars("P4", "p99"+at, rateMetric(rate, "p99"), latency...)...)
		list = append(list, bars("P4", "server CPU"+at, rateMetric(rate, "cpu"), as)...)
	}
	most := rates[len(rates)-1]
	return append(list, Goal{ID: "P4", Text: "part of " + loadgen.Thousands(fmt.Sprint(most)) +
		" pairs/s that is reached", Condition: fmt.Sprintf(">= %d %% in each round: it never falls behind", kept),
		Ours: operand(Signalbox, rateMetric(most, "kept")), Always: true, Factor: kept})
}

// demand completes a goal of which the metric is known.
type demand func(t *Goal)

// bars are the demands on one metric of this project.
func bars(id, text, metric string, demands ...demand) []Goal {
	list := make([]Goal, len(demands))
	for i, d := range demands {
		list[i] = Goal{ID: id, Text: text, Ours: operand(Signalbox, metric)}
		d(&list[i])
	}
	return list
}

// atLeast demands at least so many times what another system has in the same metric.
func atLeast(factor float64, subject, name string) demand {
	return compared(">=", factor, subject, name)
}

// atMost demands at most so many times what another system has in the same metric.
func atMost(factor float64, subject, name string) demand {
	return compared("<=", factor, subject, name)
}

func compared(sign string, factor float64, subject, name string) demand {
	return func(t *Goal) {
		t.Condition = sign + " " + factorText(factor) + " x " + name
		t.Other, t.Factor, t.AtMost = operand(subject, t.Ours.Metrics...), factor, sign == "<="
	}
}

// within demands at most an amount in the metric's own unit.
func within(most float64, text string) demand {
	return func(t *Goal) { t.Condition, t.Factor, t.AtMost = "<= "+text, most, true }
}

// factorText has a decimal where whole numbers begin: 0.2, 1.0, 1.5, 20.
func factorText(f float64) string {
	if f == math.Trunc(f) && f < 2 {
		return strconv.FormatFloat(f, 'f', 1, 64)
	}
	return plain(f)
}

// Verdict is how a bar came out.
type Verdict struct {
	Goal     Goal
	Unit     Unit
	Ours     Stat
	Other    Stat // of no rounds when the bar has no other side
	Ratio    Stat // ours to the other side's, round by round; without one, ours
	Measured bool
	Met      bool
	By       float64 // how far the ratio that decides lies from the factor, as a part of the factor; positive is the good side
}

// evaluate holds the figures against a bar. A bar of which a side was not measured is not known.
func (b Goal) evaluate(f measurements) Verdict {
	v := Verdict{Goal: b, Ours: StatOf(nil), Other: StatOf(nil), Ratio: StatOf(nil)}
	ours := b.Ours.values(f)
	if ours == nil {
		return v
	}
	v.Unit = f.find(b.Ours.Metrics[0], b.Ours.Subject).Unit
	v.Ours = StatOf(ours)
	if len(b.Other.Metrics) == 0 {
		v.Ratio = v.Ours
	} else {
		other := b.Other.values(f)
		v.Other = StatOf(other)
		v.Ratio = StatOf(ratios(ours, other))
	}
	if v.Ratio.N == 0 {
		return v
	}
	v.Measured = true
	decides := v.Ratio.Median
	switch {
	case b.Always && b.AtMost:
		decides = v.Ratio.High
	case b.Always:
		decides = v.Ratio.Low
	}
	v.By = decides/b.Factor - 1
	if b.AtMost {
		v.By = -v.By
	}
	v.Met = v.By >= 0
	return v
}

// Text says how it came out.
func (v Verdict) Text() string {
	switch {
	case !v.Measured:
		return "not measured"
	case v.Met:
		return "met"
	}
	return fmt.Sprintf("**missed by %s**", percent(-v.By))
}

func percent(part float64) string {
	return strings.TrimSuffix(fmt.Sprintf("%.1f", 100*part), ".0") + " %"
}
