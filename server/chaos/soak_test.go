package chaos

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/admin"
	"github.com/signalbox-dev/signalbox/client/rollout"
)

// soakSampled are what must not grow with time, in the metrics of the instance that is never
// killed: the last quarter of the run may have so much of the first. The log goes up and down
// between snapshots.
var soakSampled = []struct {
	metric string
	most   float64
}{
	{"process_resident_memory_bytes", 1.1},
	{"go_goroutines", 1.1},
	{"process_open_fds", 1.1},
	{"signalbox_log_bytes", 1.5},
}

// TestSoak: three instances serve a mixed load, services whose members restart, and a track. In
// each window an instance is killed and started again, the number of shards changes, and five
// versions roll out. No call fails, and memory, goroutines, files and the log stay as they are.
// -length is the length; what grows is an error from an hour on.
func TestSoak(t *testing.T) {
	length := sizeOf(t, 40*time.Second, 2*time.Hour)
	if *lengthFlag > 0 {
		length = *lengthFlag
	}
	windows := max(4, int(length/(5*time.Minute)))
	c := newCluster(t)
	c.startThree()
	s := &soak{cluster: c, window: length / time.Duration(windows), samples: map[string][][]float64{}}
	s.client = openClients(t, 1, c.endpoints()...)[0]
	publish, loaded := s.startRollout()

	services := make(chan error, 1)
	go func() {
		r, err := measureLoad(c.bin, c.endpoints(), "discovery", "--sessions", "500", "--churn", "10", "--connections", "20",
			"--duration", (length * 9 / 10).String())
		if err == nil {
			t.Logf("services: %v", r)
		}
		services <- err
	}()
	var p99 []float64
	for i := range windows {
		var mixed *loadResult
		ended := make(chan error, 1)
		began := now()
		go func() {
			var err error
			mixed, err = measureLoad(c.bin, c.endpoints(), "mixed", "--rate", "500", "--callers", "64",
				"--duration", (s.window * 3 / 4).String(), "--warm-up", (s.window / 8).String())
			ended <- err
		}()
		s.disturb(i, publish)
		if err := <-ended; err != nil {
			t.Fatalf("window %d: %v", i+1, err)
		}
		t.Logf("window %d of %d: %v", i+1, windows, mixed)
		if len(mixed.Errors) > 0 {
			t.Errorf("window %d: %v", i+1, mixed.Errors)
		}
		p99 = append(p99, mixed.Series[0].P99)
		time.Sleep(s.window - (now() - began))
	}
	if err := <-services; err != nil {
		t.Error(err)
	}
	t.Logf("an instance of the track loaded %d versions", loaded())
	quarter := windows / 4
	grown := func(what string, most float64, first, last []float64) {
		a, b := middle(first), middle(last)
		t.Logf("%s: %.4g in the first quarter, %.4g in the last: %.2f", what, a, b, b/a)
		if length >= time.Hour && b > most*a {
			t.Errorf("%s grew to %.2f of what it was", what, b/a)
		}
	}
	for _, x := range soakSampled {
		list := s.samples[x.metric]
		grown(x.metric, x.most, slices.Concat(list[:quarter]...), slices.Concat(list[windows-quarter:]...))
	}
	grown("p99", 1.25, p99[:quarter], p99[windows-quarter:])
}

type soak struct {
	*cluster
	window  time.Duration
	client  *client.Client
	samples map[string][][]float64 // by metric: those of each window
}

func middle(list []float64) float64 {
	list = slices.Sorted(slices.Values(list))
	if len(list) == 0 {
		return 0
	}
	return list[len(list)/2]
}

// disturb does to the cluster what window i has in store for it, and samples the first instance.
func (s *soak) disturb(i int, publish func() error) {
	s.t.Helper()
	for _, x := range soakSampled {
		s.samples[x.metric] = append(s.samples[x.metric], nil)
	}
	const steps = 20
	for step := range steps {
		time.Sleep(s.window * 9 / 10 / steps)
		for _, x := range soakSampled {
			s.samples[x.metric][i] = append(s.samples[x.metric][i], s.instances["a"].metric(x.metric))
		}
		var err error
		switch victim := s.instances[[]string{"b", "c"}[i%2]]; {
		case step == 4:
			victim.kill()
		case step == 5:
			victim.start()
		case step == 12:
			_, err = admin.New(s.client).SetShards(s.t.Context(), "default", uint32(2+i%2))
		case step%4 == 3:
			err = publish()
		}
		if err != nil {
			s.t.Fatalf("window %d: %v", i+1, err)
		}
	}
}

// startRollout makes a track with an instance in each of two locations. publish gives it the next
// version.
func (s *soak) startRollout() (publish func() error, loaded func() int64) {
	s.t.Helper()
	const name = "soak/base"
	session := func() *client.Session {
		x, err := s.client.Session(s.t.Context(), client.DefaultNode)
		if err != nil {
			s.t.Fatal(err)
		}
		return x
	}
	order := []rollout.Location{{Name: "first"}, {Name: "second", Delay: s.window / 100}}
	if _, err := rollout.NewTrack(session(), name).Create(s.t.Context(), rollout.Config{Source: rollout.Published, Locations: order}); err != nil {
		s.t.Fatal(err)
	}
	ctx, stop := context.WithCancel(s.t.Context())
	var followers sync.WaitGroup
	s.t.Cleanup(func() { stop(); followers.Wait() })
	var applied atomic.Int64
	for _, l := range order {
		f, err := rollout.NewFollower(rollout.FollowerOptions{
			Client: s.client, Node: client.DefaultNode, Track: name, ID: l.Name, Location: l.Name,
			Update: func(context.Context, rollout.Version) error { applied.Add(1); return nil },
		})
		if err != nil {
			s.t.Fatal(err)
		}
		followers.Go(func() {
			if err := f.Run(ctx); err != nil && ctx.Err() == nil {
				s.t.Errorf("the instance in %s: %v", l.Name, err)
			}
		})
	}
	number := uint64(0)
	return func() error {
		number++
		x := session() // the last one may have ended with an instance
		_, err := rollout.NewTrack(x, name).Publish(s.t.Context(), number, []byte(strconv.FormatUint(number, 10)))
		return errors.Join(err, x.Close(s.t.Context()))
	}, applied.Load
}
