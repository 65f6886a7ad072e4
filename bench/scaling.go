package bench

import (
	"fmt"
	"io"
	"math"
	"strings"
)

// Costs are what work costs, measured on one machine. They are what the model of many machines
// stands on. What a report did not measure is NaN.
type Costs struct {
	Pair      float64 // CPU of one server for a pair at full batches, us
	Three     float64 // CPU of three servers together for a pair, us
	Leader    float64 // part of it that the leader of the shard uses; only `bench scale` measures it
	Written   float64 // bytes that a pair has written by one server
	Written3  float64 // by three servers together
	KiB       float64 // CPU of one server for a KiB of data in the log, us
	KiBOnDisk float64 // bytes that one server writes for a byte of data
	Seen      float64 // CPU of the server for a change that one watcher sees, us
	Memory    float64 // bytes of an idle session with a connection of its own
	Shared    float64 // bytes of an idle session on shared connections
	Alive     float64 // CPU of an idle session with a connection of its own, us a second
	Name      float64 // bytes of a semaphore
	Empty     float64 // bytes of an instance that nobody uses
	Idle      float64 // CPU of an instance alone that nobody uses, us a second
	Member    float64 // CPU of one of three instances that nobody uses, us a second
	Sync      float64 // the disk's time to make an append durable, us
	Handoffs  float64 // of one lock, a second: what a single name carries
	Measured3 float64 // pairs/s of three servers and their load on the one machine
}

// CostsOf takes the costs from a report.
func CostsOf(r *Report) Costs {
	get := func(work string) float64 {
		if f := r.Measurements.find(work, Signalbox); f != nil {
			return StatOf(f.Values).Median
		}
		return math.NaN()
	}
	return Costs{
		Pair: 1e6 / get("pairs-1024-cpu"), Three: 1e6 / get("three-1024-cpu"), Leader: math.NaN(), Written: get("pairs-1024-written"),
		Written3: get("three-1024-written"),
		KiB:      get("data-cpu"), KiBOnDisk: get("data-written"), Seen: 1e6 / get("watch-5000-cpu"),
		Memory: get("idle-own-memory"), Shared: get("idle-shared-memory"), Alive: get("idle-own-cpu"), Name: get("names-memory"),
		Empty: get("empty-memory"), Idle: get("empty-cpu"), Member: get("three-empty-cpu"), Sync: r.Machine.Fsync * 1e3,
		Handoffs: get("handoffs-64"), Measured3: get("three-1024"),
	}
}

// rows of the costs, for people.
func (c Costs) rows() []row {
	return []row{
		{"an operation", "CPU of one server for a pair at full batches", c.Pair, Microseconds},
		{"", "CPU of three servers together for a pair", c.Three, Microseconds},
		{"", "hand-offs of one lock a second, whatever the number of machines", c.Handoffs, PerSecond},
		{"a byte of log", "bytes that one server writes for a pair", c.Written, Bytes},
		{"", "bytes that three servers write together for a pair", c.Written3, Bytes},
		{"", "CPU of one server for a KiB of data", c.KiB, Microseconds},
		{"", "bytes that one server writes for a byte of data", c.KiBOnDisk, Bytes},
		{"", "an append made durable", c.Sync, Microseconds},
		{"a session", "memory, connection of its own", c.Memory, Bytes},
		{"", "memory, shared connections", c.Shared, Bytes},
		{"", "CPU a second, connection of its own", c.Alive, Microseconds},
		{"a semaphore", "memory", c.Name, Bytes},
		{"a watcher", "CPU of the server for a change that it sees", c.Seen, Microseconds},
		{"an instance", "memory when nobody uses it", c.Empty, Bytes},
		{"", "CPU a second when nobody uses it, alone", c.Idle, Microseconds},
		{"", "CPU a second when nobody uses it, one of three", c.Member, Microseconds},
	}
}

type row struct {
	of, text string
	value    float64
	unit     Unit
}

// Assumptions of the model: what one machine cannot measure.
type Assumptions struct {
	Copies   int     // replicas of a shard
	Shards   int     // data shards of a replicaset
	Cores    float64 // of a machine, all for the server: clients are elsewhere
	Load     float64 // part of the cores that the work may take
	Follower float64 // what following costs, as a part of what leading does; for reports without three servers
	Send     float64 // what replicating to one follower costs the leader, likewise
	Network  float64 // bytes a second that a machine may send
	Disk     float64 // bytes a second that a machine may write durably
	Wire     float64 // bytes that a pair takes on the wire between client and server, both ways
	Event    float64 // bytes of a change on the wire to a watcher
	RAM      float64 // bytes of a machine that sessions may fill
	// messages a second between the meta shard's leader and each other instance: raft's heartbeats
	// and the instance's own, with their answers
	Beats   float64
	Message float64 // CPU of such a message, us
}

// DefaultAssumptions are modest machines of today.
func DefaultAssumptions() Assumptions {
	return Assumptions{
		Copies: 3, Shards: 2, Cores: 8, Load: 0.6, Follower: 0.35, Send: 0.1, Network: 1.25e9 * 0.5, Disk: 300e6, Wire: 400,
		Event: 120, RAM: 16 << 30,
		Beats: 22, Message: 30,
	}
}

// rows of the assumptions, for people.
func (a Assumptions) rows() []row {
	return []row{
		{"", "copies of each shard", float64(a.Copies), ""},
		{"", "data shards of a replicaset: what so many cores get by default", float64(a.Shards), ""},
		{"", "cores of a machine, all for the server: clients are elsewhere", a.Cores, ""},
		{"", "part of the cores that work may take", a.Load, ""},
		{"", "bytes a second that a machine may send", a.Network, Bytes},
		{"", "bytes a second that a machine may write durably", a.Disk, Bytes},
		{"", "bytes that a pair takes on the wire between client and server, both ways", a.Wire, Bytes},
		{"", "bytes of a change on the wire to a watcher", a.Event, Bytes},
		{"", "memory of a machine that sessions, or semaphores, may fill", a.RAM, Bytes},
		{"", "messages a second between the leader of the meta shard and each other instance", a.Beats, PerSecond},
		{"", "CPU of such a message", a.Message, Microseconds},
		{"", "following, as a part of what leading costs, where three servers were not measured", a.Follower, ""},
		{"", "replicating to a follower, likewise", a.Send, ""},
	}
}

// Prediction is what so many machines carry, each figure with nothing else to do.
type Prediction struct {
	Pairs    float64 // a second
	Limit    string  // what stops more pairs
	Seen     float64 // changes seen by watchers a second
	Sessions float64 // idle, a connection each
	Names    float64 // semaphores
	Meta     float64 // part of a core that the leader of the meta shard spends on the others being there
}

// Predict says what the costs mean for a number of machines. They are replicasets of as many
// machines as there are copies; one that is left over serves no data shard. Data shards are spread
// evenly: their work grows with the machines. A machine that leads more shards than its neighbours
// is full first, and callers of all names wait for the slowest: the machine that leads the meta
// shard too, which no operation of this table touches, and which grows with the machines.
func Predict(c Costs, a Assumptions, machines int) Prediction {
	copies := min(a.Copies, machines)
	more := float64(copies - 1)
	m := float64(machines / copies * copies)
	p := Prediction{Meta: float64(machines-1) * a.Beats * a.Message / 1e6}
	// Each pair is led once, and followed by the other copies. Three servers on one machine have
	// measured what that costs together; two lie between one and three.
	between := func(one, three, otherwise float64) float64 {
		if math.IsNaN(three) {
			return otherwise
		}
		return one + (three-one)*more/2
	}
	perPair := between(c.Pair, c.Three, c.Pair*(1+more*(a.Follower+a.Send)))
	written := between(c.Written, c.Written3, c.Written*(1+more))
	own := c.Member // what an instance uses for being there
	if copies == 1 || math.IsNaN(own) {
		own = c.Idle
	}
	if math.IsNaN(own) {
		own = 0
	}
	// What the leader of a shard and each follower use of a pair, as parts of what it costs.
	lead := between(1, c.Leader, (1+more*a.Send)/(1+more*(a.Send+a.Follower)))
	follow := 0.
	if copies > 1 {
		follow = (1 - lead) / more
	}
	led := math.Ceil(float64(a.Shards) / float64(copies)) // by the busiest machine of a replicaset
	busiest := (led*lead + (float64(a.Shards)-led)*follow) / float64(a.Shards)
	core := a.Cores*a.Load*1e6 - own // us a second of a machine
	cpu := m*core - p.Meta*1e6
	limits := []struct {
		name string
		rate float64
	}{
		{"CPU", m / float64(copies) * (core - p.Meta*1e6) / (perPair * busiest)},
		{"disk", m * a.Disk / written},
		{"network", m * a.Network / (a.Wire/2 + c.Written*more)},
	}
	p.Pairs = math.Inf(1)
	for _, l := range limits {
		if l.rate < p.Pairs {
			p.Pairs, p.Limit = l.rate, l.name
		}
	}
	p.Seen = min(cpu/c.Seen, m*a.Network/a.Event)
	// Connections are spread over all machines, the session's record lives in each copy: the shared
	// session is the record.
	p.Sessions = min(m*a.RAM/(c.Memory+more*c.Shared), cpu/c.Alive)
	p.Names = m * a.RAM / (c.Name * (1 + more))
	return p
}

// clusterSizes are the numbers of machines that the page speaks of.
var clusterSizes = []int{1, 3, 9, 30, 100}

// WriteScaling writes the costs of a report, what is assumed, and what both predict.
func WriteScaling(w io.Writer, r *Report) error {
	c, a := CostsOf(r), DefaultAssumptions()
	var b strings.Builder
	fmt.Fprintf(&b,
		"Costs, from the report of %s: medians of %d rounds, servers and load on one machine.\n\n%s.\n\n| of | | measured |\n|---|---|---|\n",
		r.Begun.Format("2006-01-02 15:04"), r.Rounds, strings.Replace(r.Machine.String(), "; disk", ";\ndisk", 1))
	for _, x := range c.rows() {
		fmt.Fprintf(&b, "| %s | %s | %s |\n", x.of, x.text, amount(x.value, x.unit))
	}
	b.WriteString("\n| assumed | |\n|---|---|\n")
	for _, x := range a.rows() {
		value := amount(x.value, x.unit)
		if x.unit == "" {
			value = plain(x.value)
		}
		fmt.Fprintf(&b, "| %s | %s |\n", x.text, value)
	}
	b.WriteString(
		"\n| machines | pairs/s | limited by | changes seen/s | idle sessions | semaphores | meta shard's leader, of a core |\n" +
			"|---|---|---|---|---|---|---|\n")
	for _, n := range clusterSizes {
		p := Predict(c, a, n)
		fmt.Fprintf(&b, "| %d | %s | %s | %s | %s | %s | %s |\n",
			n, rateText(p.Pairs), p.Limit, rateText(p.Seen), rateText(p.Sessions), rateText(p.Names), percent(p.Meta))
	}
	if !math.IsNaN(c.Measured3) && !math.IsNaN(c.Three) {
		// The model on the very machine where it was measured: what it leaves out shows here.
		fmt.Fprintf(&b, "\nFor comparison: three servers and their load did %[2]s pairs/s on this one machine of %[1]d cores.\n"+
			"By these costs the servers needed %[3]s cores. The load, the system and waiting for the disk took\nthe rest.\n",
			r.Machine.Cores, digits(c.Measured3), digits(c.Measured3*c.Three/1e6))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func rateText(v float64) string { return amount(v, PerSecond) }
