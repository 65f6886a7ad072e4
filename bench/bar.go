package bench

import (
	"fmt"
	"math"
	"strings"
)

// Bar is a demand: one side of a comparison may be at least, or at most, so many times the other.
type Bar struct {
	ID     string
	Work   string // for people
	Demand string // for people
	Goal   bool   // wished for, not demanded
	Ours   Side
	Peer   Side // of no figures: the demand is Factor in the figure's own unit
	AtMost bool
	Factor float64
}

// Side is one or several figures of one system.
type Side struct {
	Subject string
	Works   []string
	Pick    func(values []float64) float64 // of several works in one round; nil: there is one
	Times   float64                        // 0 is 1
}

func of(subject string, works ...string) Side { return Side{Subject: subject, Works: works} }

func (s Side) times(n float64) Side { s.Times = n; return s }

func (s Side) pick(f func([]float64) float64) Side { s.Pick = f; return s }

// values by round; nil when a figure is missing.
func (s Side) values(f figures) []float64 {
	var columns [][]float64
	for _, w := range s.Works {
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

func least(v []float64) float64 {
	m := v[0]
	for _, x := range v {
		m = min(m, x)
	}
	return m
}

func most(v []float64) float64 {
	m := v[0]
	for _, x := range v {
		m = max(m, x)
	}
	return m
}

var shardWorks = []string{"shards-1", "shards-4", "shards-16", "shards-64"}
var nameWorks = []string{"names-few", "names-many"}

// Bars are where this project is to stand. The figures are ratios of one run, so that they hold on other machines.
var Bars = []Bar{
	{ID: "P1", Work: "pairs/s, 1,024 callers over few connections", Demand: ">= 20 x etcd", Ours: of(Box, "pairs-1024"), Peer: of(Etcd, "pairs-1024"), Factor: 20},
	{ID: "P1", Work: "pairs/s, 1,024 callers over few connections", Demand: ">= 10 x ZooKeeper", Ours: of(Box, "pairs-1024"), Peer: of(ZooKeeper, "pairs-1024"), Factor: 10},
	{ID: "P1", Work: "pairs/s, 1,024 callers over few connections", Demand: ">= 1.5 x Redis through rueidis", Ours: of(Box, "pairs-1024"), Peer: of(Rueidis, "pairs-1024"), Factor: 1.5},
	{ID: "P2", Work: "pairs/s, 256 callers with a connection each; two messages a pair", Demand: ">= 0.5 x the messages of a bare gnet echo",
		Ours: of(Box, "pairs-256").times(2), Peer: of(Echo, "echo-256"), Factor: 0.5},
	{ID: "P2", Work: "pairs/s, 256 callers with a connection each", Demand: ">= 1.0 x Redis through go-redis", Goal: true,
		Ours: of(Box, "pairs-256"), Peer: of(GoRedis, "pairs-256"), Factor: 1},
	{ID: "P3", Work: "a pair of one caller alone, p50", Demand: "<= 1.15 x two proposals of bare dragonboat",
		Ours: of(Box, "pair-1"), Peer: of(Dragonboat, "proposal-1").times(2), AtMost: true, Factor: 1.15},
	{ID: "P4", Work: "p99 at half of P1's rate, open loop", Demand: "<= 0.25 x etcd's at half of its own",
		Ours: of(Box, "half-p99"), Peer: of(Etcd, "half-p99"), AtMost: true, Factor: 0.25},
	{ID: "P5", Work: "hand-offs/s, 64 contenders", Demand: ">= 0.8 x proposals/s of bare dragonboat, one after the other",
		Ours: of(Box, "handoffs-64"), Peer: of(Dragonboat, "proposal-1-rate"), Factor: 0.8},
	{ID: "P5", Work: "hand-offs/s, 64 contenders", Demand: ">= 4 x etcd", Ours: of(Box, "handoffs-64"), Peer: of(Etcd, "handoffs-64"), Factor: 4},
	{ID: "P6", Work: "STRICT describes/s, 256 callers", Demand: ">= 5 x etcd's linearizable reads", Ours: of(Box, "strict-256"), Peer: of(Etcd, "strict-256"), Factor: 5},
	{ID: "P6", Work: "RELAXED describes/s, 256 callers", Demand: ">= 1.0 x Redis GET through rueidis", Ours: of(Box, "relaxed-256"), Peer: of(Rueidis, "relaxed-256"), Factor: 1},
	{ID: "P7", Work: "a change to 5,000 watchers, p99", Demand: "<= 0.2 x etcd", Ours: of(Box, "watch-5000-p99"), Peer: of(Etcd, "watch-5000-p99"), AtMost: true, Factor: 0.2},
	{ID: "P7", Work: "a change to 20,000 watchers on 5,000 connections, p99", Demand: "<= 1.0 x Redis publish",
		Ours: of(Box, "crowd-20000-p99"), Peer: of(GoRedis, "crowd-20000-p99"), AtMost: true, Factor: 1},
	{ID: "P7", Work: "20,000 watchers against 5,000, p99", Demand: "<= 4 x, and 15 %: it grows linearly",
		Ours: of(Box, "watch-20000-p99"), Peer: of(Box, "watch-5000-p99"), AtMost: true, Factor: 4 * 1.15},
	{ID: "P8", Work: "server memory per idle session, connection of its own", Demand: "<= 4 KB", Ours: of(Box, "idle-own-memory"), AtMost: true, Factor: 4 << 10},
	{ID: "P8", Work: "server memory per idle session, shared connections", Demand: "<= 0.5 KB", Ours: of(Box, "idle-shared-memory"), AtMost: true, Factor: 512},
	{ID: "P9", Work: "server CPU per idle session and second, connection of its own", Demand: "<= 5 us", Ours: of(Box, "idle-own-cpu"), AtMost: true, Factor: 5},
	{ID: "P10", Work: "pairs/s, 1,024 callers, three servers on this machine", Demand: ">= 12 x etcd's three", Ours: of(Box, "three-1024"), Peer: of(Etcd, "three-1024"), Factor: 12},
	{ID: "P10", Work: "pairs/s, 1,024 callers, three servers on this machine", Demand: ">= 7 x ZooKeeper's three",
		Ours: of(Box, "three-1024"), Peer: of(ZooKeeper, "three-1024"), Factor: 7},
	{ID: "P11", Work: "pairs per CPU second, the worst of 1, 4, 16, 64 shards against the best", Demand: ">= 0.85 x",
		Ours: of(Box, shardWorks...).pick(least), Peer: of(Box, shardWorks...).pick(most), Factor: 0.85},
	{ID: "P11", Work: "pairs per CPU second, the worse of 1 thousand and 1 million semaphores against the better", Demand: ">= 0.85 x",
		Ours: of(Box, nameWorks...).pick(least), Peer: of(Box, nameWorks...).pick(most), Factor: 0.85},
}

// Verdict is how a bar came out.
type Verdict struct {
	Bar   Bar
	Unit  Unit
	Ours  Stat
	Peer  Stat // of no rounds when the bar has no peer
	Ratio Stat // ours to the peer's, round by round; without a peer, ours
	Known bool
	Met   bool
	By    float64 // how far the median ratio lies from the factor, as a part of the factor; positive is the good side
}

// judge holds the figures against a bar. A bar of which a side was not measured is not known.
func (b Bar) judge(f figures) Verdict {
	v := Verdict{Bar: b, Ours: StatOf(nil), Peer: StatOf(nil), Ratio: StatOf(nil)}
	ours := b.Ours.values(f)
	if ours == nil {
		return v
	}
	v.Unit = f.find(b.Ours.Works[0], b.Ours.Subject).Unit
	v.Ours = StatOf(ours)
	if len(b.Peer.Works) == 0 {
		v.Ratio = v.Ours
	} else {
		peer := b.Peer.values(f)
		v.Peer = StatOf(peer)
		v.Ratio = StatOf(ratios(ours, peer))
	}
	if v.Ratio.N == 0 {
		return v
	}
	v.Known = true
	v.By = v.Ratio.Median/b.Factor - 1
	if b.AtMost {
		v.By = -v.By
	}
	v.Met = v.By >= 0
	return v
}

// Word says how it came out.
func (v Verdict) Word() string {
	switch {
	case !v.Known:
		return "not measured"
	case v.Met:
		return "met"
	case v.Bar.Goal:
		return fmt.Sprintf("goal missed by %s", percent(-v.By))
	}
	return fmt.Sprintf("**missed by %s**", percent(-v.By))
}

func percent(part float64) string {
	return strings.TrimSuffix(fmt.Sprintf("%.1f", 100*part), ".0") + " %"
}
