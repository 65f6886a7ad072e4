package integration

import (
	"fmt"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server"
	"github.com/signalbox-dev/signalbox/server/servertest/port"
)

// pollers are instances of one track, each with a session of its own, on some connections: all
// leaders that have the target, so that nothing is left to do but to ask.
type pollers struct {
	s     *instance
	node  uint64
	at    uint64 // the track's bucket
	conns []*pollingConn
}

type pollingConn struct {
	*raw
	polls []protocol.TrackPoll
	out   []byte
}

// newPollers registers conns times each instances, spread over the locations, and has all of them
// load the first version.
func newPollers(t testing.TB, s *instance, conns, each int, locations ...string) *pollers {
	t.Helper()
	boss := connect(t, s)
	x := &pollers{s: s, node: boss.node()}
	name := []byte("geo/crowd")
	x.at = boss.bucket(x.node, string(name))
	session := boss.session(x.node, 1<<40).Session
	config := protocol.TrackConfig{Source: protocol.SourcePublished}
	for _, l := range locations {
		config.Locations = append(config.Locations, protocol.LocationConfig{Name: l})
	}
	boss.must(protocol.KindTrackCreate, x.at, &protocol.TrackCreate{Head: boss.head(session), Name: name, Config: config}, nil)
	for range conns {
		x.conns = append(x.conns, &pollingConn{raw: connect(t, s)})
	}
	x.all(func(i int, c *pollingConn) {
		for j := range each {
			n := i*each + j
			id := c.session(x.node, uint64(n)).Session
			m := protocol.TrackPoll{Session: id, Name: name, ID: fmt.Sprintf("host-%05d.example.net", n)}
			r := protocol.TrackRegister{Head: protocol.Head{Session: id, Seq: 1, Low: 1}, Name: name, ID: m.ID,
				Location: locations[n%len(locations)], Role: protocol.InstanceLeader}
			var reply protocol.TrackRegisterReply
			c.must(protocol.KindTrackRegister, x.at, &r, &reply)
			m.Incarnation = reply.Incarnation
			c.polls = append(c.polls, m)
		}
	})
	var v protocol.TrackVersion
	boss.must(protocol.KindTrackPublish, x.at, &protocol.TrackPublish{Head: boss.head(session), Name: name}, &v)
	// A location may take what the one before it has from the next millisecond on.
	for left := true; left; {
		left = false
		var mu sync.Mutex
		x.all(func(_ int, c *pollingConn) {
			for j := range c.polls {
				m := &c.polls[j]
				var r protocol.TrackPollReply
				c.must(protocol.KindTrackPoll, x.at, m, &r)
				if m.Report.Current != v.Version {
					mu.Lock()
					left = true
					mu.Unlock()
				}
				if r.Version == v.Version && m.Report.Seq == 0 {
					m.Report = protocol.UpdateReport{Seq: 1, Current: r.Version, Target: r.Version, Code: "OK", Attempts: 1}
				}
			}
		})
	}
	return x
}

func (x *pollers) all(f func(i int, c *pollingConn)) {
	var wg sync.WaitGroup
	for i, c := range x.conns {
		wg.Go(func() { f(i, c) })
	}
	wg.Wait()
}

// round has every instance of a connection ask once, so many in one write.
func (c *pollingConn) round(at, version uint64, window int) error {
	for list := range slices.Chunk(c.polls, window) {
		if err := c.ask(list, at, version); err != nil {
			return err
		}
	}
	return nil
}

func (c *pollingConn) ask(list []protocol.TrackPoll, at, version uint64) error {
	c.out = c.out[:0]
	for j := range list {
		c.nextID++
		c.out = protocol.AppendFrame(c.out, protocol.KindTrackPoll, c.nextID, at, &list[j])
	}
	if err := c.writeErr(c.out); err != nil {
		return err
	}
	for range list {
		h, err := c.next()
		if err != nil || h.Arg != 0 {
			return fmt.Errorf("%v, %v", protocol.Status(h.Arg), err)
		}
		var r protocol.TrackPollReply
		if err := protocol.DecodeBody(&r, h.Body); err != nil || r.Version != version {
			return fmt.Errorf("answered %+v, %w", r, err)
		}
	}
	return nil
}

// BenchmarkPolls: what a poll costs that changes nothing, with 10,000 instances of a track. The log
// is on disk. CPU is that of the whole process: this client encodes and decodes messages, and does
// little else.
func BenchmarkPolls(b *testing.B) {
	for _, v := range []struct{ conns, window int }{{10, 1000}, {100, 100}, {1000, 10}, {1000, 1}} {
		b.Run(fmt.Sprintf("conns=%d/window=%d", v.conns, v.window), func(b *testing.B) {
			s := start(b, func(c *server.Config) {
				c.Memory, c.Raft, c.DataDir, c.Shards, c.Buckets, c.RTT = false, port.ForTest(b), b.TempDir(), 1, 4096, 100*time.Millisecond
			})
			const instances = 10_000
			x := newPollers(b, s, v.conns, instances/v.conns, "SAS", "MAN", "VLA")
			d := s.shardAt(0, x.at)
			index, barriers, used := d.Replica().Stats().AppliedIndex, d.Replica().Stats().Barriers, cpuTime()
			b.ResetTimer()
			rounds := max(1, b.N/instances)
			x.all(func(_ int, c *pollingConn) {
				for range rounds {
					if err := c.round(x.at, 1, v.window); err != nil {
						b.Error(err)
						return
					}
				}
			})
			b.StopTimer()
			polls := float64(rounds * instances)
			b.ReportMetric(polls/b.Elapsed().Seconds(), "polls/s")
			b.ReportMetric(float64((cpuTime()-used).Nanoseconds())/1000/polls, "cpu-us/poll")
			b.ReportMetric(float64(d.Replica().Stats().Barriers-barriers)/polls, "barriers/poll")
			b.ReportMetric(float64(d.Replica().Stats().AppliedIndex-index), "entries")
		})
	}
}

func cpuTime() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
