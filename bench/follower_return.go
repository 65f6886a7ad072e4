package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/signalbox-dev/signalbox/loadgen"
)

// followerReturn is a follower that is away under load, and comes back.
type followerReturn struct {
	name, text string
	cut        bool // all its packets are dropped; otherwise it is stopped by SIGSTOP
	away       time.Duration
	writers    int
	rate       float64 // writes a second of all writers; 0: each writes as soon as its last write was answered
	size       int     // bytes of a value
	reads      float64 // strict reads a second
	stall      float64 // ms, the bar of the longest write at the return; 0: as long as the other system's
}

// followerReturns are short, but for the last one.
var followerReturns = []followerReturn{
	{name: "return-pause", text: "SIGSTOP for 12 s, 32 writers of 20 bytes", away: 12 * time.Second, writers: 32, size: 20},
	{name: "return-cut", text: "all packets dropped for 12 s, 32 writers of 20 bytes", cut: true, away: 12 * time.Second,
		writers: 32, size: 20},
	{name: "return-reads", text: "SIGSTOP for 15 s, 20 writes of 5 kB and 50 strict reads a second", away: 15 * time.Second,
		writers: 20, rate: 20, size: 5000, reads: 50},
	{name: "return-large", text: "SIGSTOP for 40 s, 40 writes of 30 kB a second", away: 40 * time.Second,
		writers: 40, rate: 40, size: 30_000},
	{name: "return-long", text: "SIGSTOP for ten minutes, 500 writes of 1 kB and 50 strict reads a second",
		away: 10 * time.Minute, writers: 32, rate: 500, size: 1000, reads: 50, stall: 300},
}

const (
	returnMemory = 200 << 20        // that a server may take more while a follower is away, and when it is back
	returnWatch  = 10 * time.Second // at least, after the return
)

// returned is what a follower's return has cost.
type returned struct {
	write, read time.Duration // the longest
	whole       time.Duration // until nothing is left to do
	memory      uint64        // bytes of the server that grew most, above what it had before
}

// returns measures what each return of a follower costs, on all systems in turn.
func (c FailoverConfig) returns(
	ctx context.Context, r *Record, systems []FailoverSystem, hosts *Hosts, root string, log io.Writer,
) error {
	measured := false
	for _, f := range followerReturns {
		if !c.wants(f.name) || f.cut && hosts == nil {
			continue
		}
		if !measured {
			measured = true
			r.Text += " Then a server that does not lead is away, and returns: the longest that a call takes after its return, until 10 s after the cluster is whole, and " +
				"how much more memory the others took at most, from the moment it left."
		}
		var all []returned
		for _, s := range systems {
			x, err := f.measure(ctx, s, hosts, root)
			if err != nil {
				return fmt.Errorf("%s, a follower returns, %s: %w", s.Name(), f.text, err)
			}
			all = append(all, x)
			logf(log, "%s, a follower returns, %s: longest write %v, read %v, whole after %v, %d MiB more memory", s.Name(),
				f.text, x.write.Round(time.Millisecond), x.read.Round(time.Millisecond), x.whole.Round(10*time.Millisecond), x.memory>>20)
		}
		for i, s := range systems {
			stall, memory := 0.0, 0.0
			if i == 0 {
				memory = returnMemory
				if stall = f.stall; stall == 0 && len(all) > 1 {
					stall = all[1].write.Seconds() * 1e3
				}
			}
			text := fmt.Sprintf("a follower returns after %s, %s: ", f.text, s.Name())
			r.fact(text+"longest write", all[i].write.Seconds()*1e3, Milliseconds, stall)
			if f.reads > 0 {
				r.fact(text+"longest strict read", all[i].read.Seconds()*1e3, Milliseconds, 0)
			}
			r.fact(text+"memory of the server that grew most, above before", float64(all[i].memory), Bytes, memory)
			r.fact(text+"until nothing is left to do", all[i].whole.Seconds()*1e3, Milliseconds, 0)
		}
	}
	return nil
}

func (f followerReturn) measure(ctx context.Context, s FailoverSystem, hosts *Hosts, root string) (x returned, err error) {
	err = withCluster(ctx, s, hosts, root, func(g *Server) error {
		load, end, err := f.start(ctx, s, g)
		if err != nil {
			return err
		}
		defer end()
		if err := errors.Join(pause(ctx, 5*time.Second), g.WaitReady(ctx)); err != nil {
			return err
		}
		leader, err := g.Leader(ctx)
		if err != nil {
			return err
		}
		away := (leader + 1) % len(g.processes)
		stop := make(chan struct{})
		var memory []<-chan []Sample
		for i, p := range g.processes {
			if i != away {
				memory = append(memory, sampleServer(p, 100*time.Millisecond, stop))
			}
		}
		var stopped sync.Once
		finish := func() { stopped.Do(func() { close(stop) }) }
		defer finish()
		if err := pause(ctx, 2*time.Second); err != nil {
			return err
		}
		before := time.Now()
		leave, back := faults[1].do, faults[1].undo
		if f.cut {
			leave, back = faults[2].do, faults[2].undo
		}
		if err := errors.Join(leave(ctx, g, hosts, away), pause(ctx, f.away)); err != nil {
			return err
		}
		at := time.Now()
		if err := load.countFrom(at); err != nil {
			return err
		}
		if err := back(ctx, g, hosts, away); err != nil {
			return err
		}
		if err := g.WaitReady(ctx); err != nil {
			return err
		}
		x.whole = time.Since(at)
		if err := errors.Join(pause(ctx, returnWatch), load.allSince(ctx, at)); err != nil {
			return err
		}
		took, err := load.take()
		if err != nil {
			return err
		}
		x.write, x.read = took.write, took.read
		finish()
		span := time.Since(before).Seconds()
		for _, c := range memory {
			x.memory = max(x.memory, growth(<-c, span))
		}
		return nil
	})
	return x, err
}

// growth is how much more a server took in the last span seconds of its samples than before.
func growth(samples []Sample, span float64) uint64 {
	var first, most uint64
	if len(samples) == 0 {
		return 0
	}
	end := samples[len(samples)-1].At
	for _, s := range samples {
		if s.At < end-span {
			first = max(first, s.Memory)
		} else {
			most = max(most, s.Memory)
		}
	}
	return most - min(first, most)
}

// start starts the load of a follower's return; end stops it.
func (f followerReturn) start(ctx context.Context, s FailoverSystem, g *Server) (load *stallLoad, end func(), err error) {
	const readers = 10
	plan, err := g.Plan(LockPairs)
	if err != nil {
		return nil, nil, err
	}
	callers := f.writers
	if f.reads > 0 {
		callers += readers
	}
	plan.Connections = min(plan.Connections, callers)
	sessions, err := openIdleSessions(ctx, plan, callers)
	if err != nil {
		sessions.close()
		return nil, nil, err
	}
	load, running := startStallLoad(ctx, f.writers)
	end = func() {
		load.end()
		sessions.close()
	}
	every := func(n int, rate float64) time.Duration {
		if rate == 0 {
			return 0
		}
		return time.Duration(float64(n) / rate * float64(time.Second))
	}
	timeout := callTimeout(s)
	value := bytes.Repeat([]byte("0"), f.size)
	name := func(i int) string { return fmt.Sprintf("return-%d", i) }
	for i, session := range sessions.sessions[:f.writers] {
		writer, ok := session.(loadgen.CanStore)
		if !ok {
			end()
			return nil, nil, errors.New("the target cannot write")
		}
		if err := writer.Create(ctx, name(i), value); err != nil {
			end()
			return nil, nil, err
		}
		load.writer(running, i, every(f.writers, f.rate), func(n int) error {
			data := slices.Clone(value)
			copy(data, fmt.Sprint(n))
			return untilAnswered(running, timeout, func(ctx context.Context) error { return writer.Write(ctx, name(i), data) })
		})
	}
	for i, session := range sessions.sessions[f.writers:] {
		reader, ok := session.(loadgen.CanRead)
		if !ok {
			end()
			return nil, nil, errors.New("the target cannot read")
		}
		read := reader.Reader(true)
		load.reader(running, every(readers, f.reads), func(int) error {
			return untilAnswered(running, timeout, func(ctx context.Context) error { return read.Read(ctx, name(i%f.writers)) })
		})
	}
	return load, end, nil
}
