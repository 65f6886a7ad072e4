package bench

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// Threshold is a required ratio of two operands: at least, or at most, Factor.
type Threshold struct {
	ID        string
	Text      string // for people
	Condition string // for people
	Goal      bool   // wished for, not demanded
	Ours      Operand
	Other     Operand // of no figures: the demand is Factor in the figure's own unit
	AtMost    bool
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

// Thresholds are where this project is to stand. The figures are ratios of one run, so that they
// hold on other machines.
var Thresholds = []Threshold{
	{ID: "P1", Text: "pairs/s, 1,024 callers over few connections", Condition: ">= 20 x etcd", Ours: operand(Signalbox, "pairs-1024"), Other: operand(Etcd, "pairs-1024"), Factor: 20},
	{ID: "P1", Text: "pairs/s, 1,024 callers over few connections", Condition: ">= 10 x ZooKeeper", Ours: operand(Signalbox, "pairs-1024"), Other: operand(ZooKeeper, "pairs-1024"), Factor: 10},
	{ID: "P1", Text: "pairs/s, 1,024 callers over few connections", Condition: ">= 1.5 x Redis through rueidis", Ours: operand(Signalbox, "pairs-1024"), Other: operand(Rueidis, "pairs-1024"), Factor: 1.5},
	{ID: "P2", Text: "pairs/s, 256 callers with a connection each; two messages a pair", Condition: ">= 0.5 x the messages of a bare gnet echo",
		Ours: operand(Signalbox, "pairs-256").times(2), Other: operand(Echo, "echo-256"), Factor: 0.5},
	{ID: "P2", Text: "pairs/s, 256 callers with a connection each", Condition: ">= 1.0 x Redis through go-redis", Goal: true,
		Ours: operand(Signalbox, "pairs-256"), Other: operand(GoRedis, "pairs-256"), Factor: 1},
	{ID: "P3", Text: "a pair of one caller alone, p50", Condition: "<= 1.15 x two proposals of bare dragonboat",
		Ours: operand(Signalbox, "pair-1"), Other: operand(Dragonboat, "proposal-1").times(2), AtMost: true, Factor: 1.15},
	{ID: "P4", Text: "p99 at half of P1's rate, open loop", Condition: "<= 0.25 x etcd's at half of its own",
		Ours: operand(Signalbox, "half-p99"), Other: operand(Etcd, "half-p99"), AtMost: true, Factor: 0.25},
	{ID: "P5", Text: "hand-offs/s, 64 contenders", Condition: ">= 0.8 x proposals/s of bare dragonboat, one after the other",
		Ours: operand(Signalbox, "handoffs-64"), Other: operand(Dragonboat, "proposal-1-rate"), Factor: 0.8},
	{ID: "P5", Text: "hand-offs/s, 64 contenders", Condition: ">= 4 x etcd", Ours: operand(Signalbox, "handoffs-64"), Other: operand(Etcd, "handoffs-64"), Factor: 4},
	{ID: "P6", Text: "STRICT describes/s, 256 callers", Condition: ">= 5 x etcd's linearizable reads", Ours: operand(Signalbox, "strict-256"), Other: operand(Etcd, "strict-256"), Factor: 5},
	{ID: "P6", Text: "RELAXED describes/s, 256 callers", Condition: ">= 1.0 x Redis GET through rueidis", Ours: operand(Signalbox, "relaxed-256"), Other: operand(Rueidis, "relaxed-256"), Factor: 1},
	{ID: "P7", Text: "a change to 5,000 watchers, p99", Condition: "<= 0.2 x etcd", Ours: operand(Signalbox, "watch-5000-p99"), Other: operand(Etcd, "watch-5000-p99"), AtMost: true, Factor: 0.2},
	{ID: "P7", Text: "a change to 20,000 watchers on 5,000 connections, p99", Condition: "<= 1.0 x Redis publish",
		Ours: operand(Signalbox, "crowd-20000-p99"), Other: operand(GoRedis, "crowd-20000-p99"), AtMost: true, Factor: 1},
	{ID: "P7", Text: "20,000 watchers against 5,000, p99", Condition: "<= 4 x, and 15 %: it grows linearly",
		Ours: operand(Signalbox, "watch-20000-p99"), Other: operand(Signalbox, "watch-5000-p99"), AtMost: true, Factor: 4 * 1.15},
	{ID: "P8", Text: "server memory per idle session, connection of its own", Condition: "<= 4 KB", Ours: operand(Signalbox, "idle-own-memory"), AtMost: true, Factor: 4 << 10},
	{ID: "P8", Text: "server memory per idle session, shared connections", Condition: "<= 0.5 KB", Ours: operand(Signalbox, "idle-shared-memory"), AtMost: true, Factor: 512},
	{ID: "P9", Text: "server CPU per idle session and second, connection of its own", Condition: "<= 5 us", Ours: operand(Signalbox, "idle-own-cpu"), AtMost: true, Factor: 5},
	{ID: "P10", Text: "pairs/s, 1,024 callers, three servers on this machine", Condition: ">= 12 x etcd's three", Ours: operand(Signalbox, "three-1024"), Other: operand(Etcd, "three-1024"), Factor: 12},
	{ID: "P10", Text: "pairs/s, 1,024 callers, three servers on this machine", Condition: ">= 7 x ZooKeeper's three",
		Ours: operand(Signalbox, "three-1024"), Other: operand(ZooKeeper, "three-1024"), Factor: 7},
	{ID: "P11", Text: "pairs per CPU second, the worst of 1, 4, 16, 64 shards against the best", Condition: ">= 0.85 x",
		Ours: operand(Signalbox, shardMetrics...).pick(slices.Min), Other: operand(Signalbox, shardMetrics...).pick(slices.Max), Factor: 0.85},
	{ID: "P11", Text: "pairs per CPU second, the worse of 1 thousand and 1 million semaphores against the better", Condition: ">= 0.85 x",
		Ours: operand(Signalbox, nameMetrics...).pick(slices.Min), Other: operand(Signalbox, nameMetrics...).pick(slices.Max), Factor: 0.85},
}

// Verdict is how a bar came out.
type Verdict struct {
	Threshold Threshold
	Unit      Unit
	Ours      Stat
	Other     Stat // of no rounds when the bar has no other side
	Ratio     Stat // ours to the other side's, round by round; without one, ours
	Measured  bool
	Met       bool
	By        float64 // how far the median ratio lies from the factor, as a part of the factor; positive is the good side
}

// evaluate holds the figures against a bar. A bar of which a side was not measured is not known.
func (b Threshold) evaluate(f measurements) Verdict {
	v := Verdict{Threshold: b, Ours: StatOf(nil), Other: StatOf(nil), Ratio: StatOf(nil)}
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
	v.By = v.Ratio.Median/b.Factor - 1
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
	case v.Threshold.Goal:
		return fmt.Sprintf("goal missed by %s", percent(-v.By))
	}
	return fmt.Sprintf("**missed by %s**", percent(-v.By))
}

func percent(part float64) string {
	return strings.TrimSuffix(fmt.Sprintf("%.1f", 100*part), ".0") + " %"
}
