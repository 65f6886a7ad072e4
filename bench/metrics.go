// What is measured, and in which order is it shown?

package bench

import "slices"

// The compared systems. Two of them show physical limits: the raft engine alone, and the event loop
// alone.
const (
	Signalbox  = "signalbox"
	Etcd       = "etcd"
	ZooKeeper  = "ZooKeeper"
	GoRedis    = "Redis, go-redis"
	Rueidis    = "Redis, rueidis"
	Dragonboat = "bare dragonboat"
	Echo       = "bare gnet echo"
)

// subjects in the order of the table's columns.
var subjects = []string{Signalbox, Etcd, ZooKeeper, GoRedis, Rueidis, Dragonboat, Echo}

// Metric is something that is measured.
type Metric struct {
	ID   string
	Text string // for people
	Unit Unit

	// Kept is the metric that shows whether the rate of this measurement was kept: a system that
	// falls behind has no figure.
	Kept string
}

// loadCPU is the text of a metric that shows how fair a measurement was, and is in no table.
const loadCPU = "CPU of the load for it"

// Works, in the order of the table's rows. A pair is lock and unlock of a name that nobody else
// wants, each answered, and so durable, before the next begins.
var allMetrics = slices.Concat([]Metric{
	{ID: "pairs-1024", Text: "pairs/s, 1,024 callers over few connections", Unit: PerSecond},
	{ID: "pairs-1024-p50", Text: "its latency, p50", Unit: Milliseconds},
	{ID: "pairs-1024-p99", Text: "its latency, p99", Unit: Milliseconds},
	{ID: "pairs-1024-cpu", Text: "its pairs per CPU second of the server", Unit: PerCPUSecond},
	{ID: "pairs-1024-written", Text: "bytes that the server has written for a pair", Unit: Bytes},
}, rateMetrics(), []Metric{
	{ID: "pairs-256", Text: "pairs/s, 256 callers with a connection each", Unit: PerSecond},
	{ID: "pairs-256-p99", Text: "its latency, p99", Unit: Milliseconds},
	{ID: "pairs-256-cpu", Text: "server CPU of a pair", Unit: Microseconds},
	{ID: "pairs-256-client-cpu", Text: loadCPU, Unit: Microseconds},
	{ID: "echo-256", Text: "messages/s of 64 bytes, 256 connections", Unit: PerSecond},
	{ID: "pair-1", Text: "a pair of one caller alone, p50", Unit: Milliseconds},
	{ID: "pair-1-p99", Text: "its p99", Unit: Milliseconds},
	{ID: "proposal-1", Text: "one fsynced proposal after the other, p50", Unit: Milliseconds},
	{ID: "proposal-1-rate", Text: "such proposals/s", Unit: PerSecond},
	{ID: "handoffs-64", Text: "hand-offs/s of one lock, 64 contenders", Unit: PerSecond},
	{ID: "handoffs-64-p99", Text: "a hand-off, p99", Unit: Milliseconds},
	{ID: "strict-256", Text: "linearizable reads/s, 256 callers", Unit: PerSecond},
	{ID: "relaxed-256", Text: "relaxed reads/s, 256 callers", Unit: PerSecond},
	{ID: "watch-5000-p50", Text: "a change reaches 5,000 watchers over few connections, p50", Unit: Milliseconds},
	{ID: "watch-5000-p99", Text: "a change reaches 5,000 watchers over few connections, p99", Unit: Milliseconds},
	{ID: "watch-5000-cpu", Text: "changes seen per CPU second of the server", Unit: PerCPUSecond},
	{ID: "watch-20000-p50", Text: "20,000 watchers over few connections, p50", Unit: Milliseconds},
	{ID: "watch-20000-p99", Text: "20,000 watchers over few connections, p99", Unit: Milliseconds},
	{ID: "each-5000-p50", Text: "5,000 watchers with a connection each, p50", Unit: Milliseconds},
	{ID: "each-5000-p99", Text: "5,000 watchers with a connection each, p99", Unit: Milliseconds},
	{ID: "each-5000-cpu", Text: "server CPU of a change that they see", Unit: Milliseconds},
	{ID: "each-5000-client-cpu", Text: loadCPU, Unit: Milliseconds},
	{ID: "each-20000-p50", Text: "20,000 watchers with a connection each, p50", Unit: Milliseconds},
	{ID: "each-20000-p99", Text: "20,000 watchers with a connection each, p99", Unit: Milliseconds},
	{ID: "each-20000-cpu", Text: "server CPU of a change that they see", Unit: Milliseconds},
	{ID: "each-20000-client-cpu", Text: loadCPU, Unit: Milliseconds},
	{ID: "starts", Text: "sessions started/s, a new connection for each", Unit: PerSecond},
	{ID: "starts-cpu", Text: "server CPU of such a start", Unit: Microseconds},
	{ID: "three-1024", Text: "pairs/s, 1,024 callers over few connections, three servers on one machine", Unit: PerSecond},
	{ID: "three-1024-p50", Text: "its latency, p50", Unit: Milliseconds},
	{ID: "three-1024-p99", Text: "its latency, p99", Unit: Milliseconds},
	{ID: "three-1024-cpu", Text: "its pairs per CPU second of the three servers", Unit: PerCPUSecond},
	{ID: "three-1024-written", Text: "bytes that the three servers have written for a pair", Unit: Bytes},
	{ID: "three-pair-1", Text: "a pair of one caller alone, p50, three servers", Unit: Milliseconds},
	{ID: "three-handoffs-64", Text: "hand-offs/s of one lock, 64 contenders, three servers", Unit: PerSecond},
	{ID: "three-strict-256", Text: "linearizable reads/s, 256 callers, three servers", Unit: PerSecond},
	{ID: "idle-own-memory", Text: "server memory per idle session with a connection of its own", Unit: Bytes},
	{ID: "idle-own-cpu", Text: "server CPU per idle session and second, connection of its own", Unit: Microseconds},
	{ID: "idle-shared-memory", Text: "server memory per idle session on shared connections", Unit: Bytes},
	{ID: "idle-shared-cpu", Text: "server CPU per idle session and second, shared connections", Unit: Microseconds},
	{ID: "empty-memory", Text: "memory of a server that nobody uses", Unit: Bytes},
	{ID: "empty-cpu", Text: "CPU per second of a server that nobody uses", Unit: Microseconds},
})

func metricByID(id string) (Metric, bool) {
	i := slices.IndexFunc(allMetrics, func(m Metric) bool { return m.ID == id })
	if i < 0 {
		return Metric{}, false
	}
	return allMetrics[i], true
}
