package chaos

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/admin"
	"github.com/signalbox-dev/signalbox/server/servertest/await"
	"github.com/signalbox-dev/signalbox/server/servertest/binary"
	"github.com/signalbox-dev/signalbox/server/servertest/form"
)

// podClients are callers outside the pods, who resolve names as the other pods do.
type podClients struct {
	t     *testing.T
	c     *client.Client
	admin *admin.Client

	stop    context.CancelFunc
	running sync.WaitGroup
	calls   atomic.Int64
	failed  atomic.Pointer[error]
	longest atomic.Int64
	written atomic.Int64 // the last value of a configuration that was acknowledged

	endWatches context.CancelFunc
	watching   sync.WaitGroup
	seen       [100]atomic.Int64 // the last value of the configuration that each watcher has seen
}

func (s *podSet) clients() *podClients {
	s.t.Helper()
	var endpoints []string
	for n := range s.replicas {
		endpoints = append(endpoints, podName(n)+podDomain+":7070")
	}
	cfg := client.Config{Endpoints: endpoints, Dial: func(ctx context.Context, address string) (net.Conn, error) {
		host, port, err := net.SplitHostPort(address)
		if err != nil {
			return nil, err
		}
		s.mu.Lock()
		at := s.names[strings.TrimSuffix(host, podDomain)]
		s.mu.Unlock()
		if at == "" {
			return nil, fmt.Errorf("%s has no address", host)
		}
		return s.net.dial(ctx, 0, net.JoinHostPort(at, port))
	}}
	c, err := client.Open(s.t.Context(), cfg)
	if err != nil {
		s.t.Fatal(err)
	}
	k := &podClients{t: s.t, c: c, admin: admin.New(c)}
	s.t.Cleanup(func() { _ = c.Close() })
	return k
}

// load takes and gives back 200 locks a second, and writes a configuration that 100 watchers see.
func (k *podClients) load() {
	k.t.Helper()
	ctx, cancel := context.WithCancel(k.t.Context())
	k.stop = cancel
	session, err := k.c.Session(ctx, "/default", client.Timeout(time.Minute))
	if err != nil {
		k.t.Fatal(err)
	}
	call := func(f func() error) bool {
		began := time.Now()
		if err := f(); err != nil {
			if ctx.Err() == nil {
				k.failed.CompareAndSwap(nil, &err)
			}
			return false
		}
		k.calls.Add(1)
		for took := int64(time.Since(began)); ; {
			if old := k.longest.Load(); took <= old || k.longest.CompareAndSwap(old, took) {
				return true
			}
		}
	}
	watches, endWatches := context.WithCancel(k.t.Context())
	k.endWatches = endWatches
	for n := range k.seen {
		k.watching.Go(func() {
			for v, err := range session.Config("counter").Watch(watches) {
				if err != nil {
					if watches.Err() == nil {
						k.failed.CompareAndSwap(nil, &err)
					}
					return
				}
				var last int64
				if _, err := fmt.Sscan(string(v.Data), &last); err == nil {
					k.seen[n].Store(last)
				}
			}
		})
	}
	for n := range 20 {
		k.running.Go(func() {
			for ctx.Err() == nil {
				if !call(func() error {
					lease, err := session.Acquire(ctx, fmt.Sprint("job-", n), client.Exclusive())
					if err == nil {
						err = lease.Release(ctx)
					}
					return err
				}) {
					return
				}
				time.Sleep(100 * time.Millisecond)
			}
		})
	}
	k.running.Go(func() {
		for n := int64(1); ctx.Err() == nil; n++ {
			if !call(func() error {
				_, err := session.Config("counter").Set(ctx, fmt.Append(nil, n))
				return err
			}) {
				return
			}
			k.written.Store(n)
			time.Sleep(100 * time.Millisecond)
		}
	})
}

// endLoad ends the load once all watchers have seen the last write.
func (k *podClients) endLoad() {
	k.t.Helper()
	k.stop()
	k.running.Wait()
	await.True(k.t, "all watchers to see the last write", func() bool {
		for n := range k.seen {
			if k.seen[n].Load() < k.written.Load() {
				return k.failed.Load() != nil
			}
		}
		return true
	})
	k.endWatches()
	k.watching.Wait()
}

// end ends the load. No call has failed, and nothing that was acknowledged is lost.
func (k *podClients) end(what string) {
	k.t.Helper()
	k.endLoad()
	if err := k.failed.Load(); err != nil {
		k.t.Errorf("%s: a call failed: %v", what, *err)
	}
	k.t.Logf("%s: %d calls, the longest took %v", what, k.calls.Load(), time.Duration(k.longest.Load()))
	k.holdsAll()
}

// holdsAll reads what was acknowledged.
func (k *podClients) holdsAll() {
	k.t.Helper()
	session, err := k.c.Session(k.t.Context(), "/default")
	if err != nil {
		k.t.Fatal(err)
	}
	value, err := session.Config("counter").Get(k.t.Context())
	var n int64
	if err == nil {
		_, err = fmt.Sscan(string(value.Data), &n)
	}
	if err != nil || n < k.written.Load() {
		k.t.Errorf("the configuration is %d (%v), and %d was acknowledged", n, err, k.written.Load())
	}
	_ = session.Close(k.t.Context())
}

// expel expels an instance, and waits until it is gone.
func (k *podClients) expel(name string) {
	k.t.Helper()
	await.True(k.t, "the expulsion of "+name+" to be accepted", func() bool {
		_, err := k.admin.WithReason("scaling down").Expel(k.t.Context(), name, true)
		return err == nil
	})
	await.True(k.t, name+" to be expelled", func() bool {
		s, err := k.admin.Status(k.t.Context())
		if err != nil {
			return false
		}
		for _, i := range s.Instances {
			if i.Name == name && i.Current != "Expelled" {
				return false
			}
		}
		return true
	})
}

// whole waits until the set's pods are ready and the cluster survives the loss of any.
func (k *podClients) whole(s *podSet, within time.Duration) {
	k.t.Helper()
	began := time.Now()
	await.True(k.t, "a cluster that is whole", func() bool {
		if len(s.servingPods()) != s.replicas {
			return false
		}
		h, err := k.admin.Health(k.t.Context())
		return err == nil && h.State == "healthy" && len(h.NextLoss) == 0
	})
	if took := time.Since(began); within > 0 && took > within {
		k.t.Errorf("it took %v, longer than %v", took, within)
	}
}

// watchServing counts the pods that serve, until stop, which returns the least of any two counts in
// a row: one count lasts while pods start and stop.
func (s *podSet) watchServing() (stop func() int) {
	ctx, cancel := context.WithCancel(context.Background())
	least := make(chan int, 1)
	go func() {
		n, last := s.replicas, s.replicas
		for ctx.Err() == nil {
			now := len(s.servingPods())
			n, last = min(n, max(now, last)), now
			time.Sleep(100 * time.Millisecond)
		}
		least <- n
	}()
	return func() int {
		cancel()
		return <-least
	}
}

// updated waits until all pods have the image and are ready.
func (s *podSet) updated() {
	s.t.Helper()
	await.True(s.t, "the update", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		for n := range s.replicas {
			if p := s.pods[n]; p == nil || p.image != s.image || !p.ready.Load() || p.terminates() {
				return false
			}
		}
		return true
	})
}

// update gives the set another image, which is the same program.
func (s *podSet) update() {
	s.t.Helper()
	next := filepath.Join(s.dir, fmt.Sprint("image-", time.Now().UnixNano()))
	if err := os.Link(s.image, next); err != nil {
		s.t.Fatal(err)
	}
	s.change(func() { s.image = next })
}

// TestPods: the StatefulSet of kubernetes.yaml through the life of its pods.
func TestPods(t *testing.T) {
	form.SkipUntil(t, form.Long, "minutes")
	image := binary.Signalbox(t)
	for _, c := range []struct {
		name string
		run  func(t *testing.T, image string)
	}{
		{"first start", podsStart}, {"deleted, killed, exchanged", podsReplaced}, {"update under load", podsUpdate},
		{"update while a lower pod is not ready", podsUpdateUnready}, {"a bad image", podsBadImage},
		{"six to three", podsScale}, {"volume lost", podsVolume}, {"all at once", podsStopAll},
		{"one restored", podsRestored(1, false)}, {"one restored, clients kept", podsRestored(1, true)},
		{"three restored", podsRestored(3, false)}, {"three restored, clients kept", podsRestored(3, true)},
	} {
		t.Run(c.name, func(t *testing.T) { c.run(t, image) })
	}
}

func podsStart(t *testing.T, image string) {
	s := newPodSet(t, image, 3, 0, 1)
	s.pod(2)
	s.change(func() { delete(s.held, 1) })
	s.pod(1)
	time.Sleep(20 * time.Second) // a late pod: nothing tells when it is late enough
	s.change(func() { delete(s.held, 0) })
	s.pod(0)
	began := time.Now()
	s.updated()
	if took := time.Since(began); took > 15*time.Second {
		t.Errorf("ready %v after the last one came", took)
	}
	k := s.clients()
	k.whole(s, 0)
	if h, err := k.admin.Status(t.Context()); err != nil || len(h.Instances) != 3 {
		t.Errorf("there are %d instances: %v", len(h.Instances), err)
	}
}

// wholeSet is a set of three pods that serve, and clients.
func wholeSet(t *testing.T, image string, replicas int) (*podSet, *podClients) {
	t.Helper()
	s := newPodSet(t, image, replicas)
	s.updated()
	k := s.clients()
	k.whole(s, 0)
	return s, k
}

func podsReplaced(t *testing.T, image string) {
	s, k := wholeSet(t, image, 3)
	k.load()
	s.pod(1).delete()
	<-s.pods[1].gone
	k.whole(s, 0)
	s.change(func() { s.late = 30 * time.Second })
	lost := s.pod(2)
	close(lost.killed)
	await.True(t, "the name to have its new address", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		p := s.pods[2]
		return p != nil && p != lost && s.names[p.name] == s.net.address(p.host)
	})
	k.whole(s, 15*time.Second)
	s.change(func() { s.late = 0 })
	one, two := s.pod(1), s.pod(2)
	s.change(func() { s.give[1], s.give[2] = two.host, one.host; s.held[1], s.held[2] = true, true })
	one.delete()
	two.delete()
	<-one.gone
	<-two.gone
	s.change(func() { clear(s.held) })
	k.whole(s, 0)
	k.endLoad() // with two of three down, calls wait
	k.holdsAll()
}

func podsUpdate(t *testing.T, image string) {
	s, k := wholeSet(t, image, 3)
	k.load()
	serving := s.watchServing()
	s.update()
	s.updated()
	if n := serving(); n < 2 {
		t.Errorf("%d of three served", n)
	}
	k.end("update")
	if d := time.Duration(k.longest.Load()); d > time.Second {
		t.Errorf("the longest call took %v", d)
	}
	if h, err := k.admin.Status(t.Context()); err != nil || len(h.Instances) != 3 {
		t.Errorf("there are %d instances: %v", len(h.Instances), err)
	}
}

func podsUpdateUnready(t *testing.T, image string) {
	s, k := wholeSet(t, image, 3)
	if n := k.updateUnready(s); n < 2 {
		t.Errorf("%d of three served", n)
	}
	k.end("update while pod 0 is not ready")
}

// updateUnready updates a set of three while its lowest pod is down, and returns how many served at
// least.
func (k *podClients) updateUnready(s *podSet) int {
	t := k.t
	t.Helper()
	zero := s.pod(0)
	s.change(func() { s.held[0] = true })
	zero.delete()
	<-zero.gone
	await.True(t, "pod 0 to be down", func() bool { return len(s.servingPods()) == 2 })
	k.load()
	serving := s.watchServing()
	s.update()
	await.True(t, "the update to ask the highest pod to stop", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.pods[2] != nil && s.pods[2].terminates()
	})
	time.Sleep(30 * time.Second) // of the wait of 60 s
	s.change(func() { delete(s.held, 0) })
	s.updated()
	return serving()
}

// TestPodsMistakes: what charts have got wrong is found by the scenarios of [TestPods].
func TestPodsMistakes(t *testing.T) {
	form.SkipUntil(t, form.Long, "minutes")
	image := binary.Signalbox(t)
	t.Run("no stop-wait", func(t *testing.T) {
		s := newPodSet(t, image, 3)
		s.updated()
		s.change(func() {
			for i, e := range s.template.Containers[0].Env {
				if e.Name == "SIGNALBOX_STOP_WAIT" {
					s.template.Containers[0].Env[i].Value = "0s"
				}
			}
		})
		s.update() // pods without the wait
		s.updated()
		k := s.clients()
		k.whole(s, 0)
		if n := k.updateUnready(s); n >= 2 {
			t.Errorf("an update without stop-wait left %d of three", n)
		}
		k.endLoad()
	})
	t.Run("a member removed at stop", func(t *testing.T) {
		s, k := wholeSet(t, image, 3)
		s.change(func() { s.preStop = k.expel })
		s.update()
		await.True(t, "the updated pod to be refused", func() bool {
			return strings.Contains(s.output[2].String(), "expelled")
		})
		if h, err := k.admin.Health(t.Context()); err != nil || h.State == "healthy" && len(h.NextLoss) == 0 {
			t.Errorf("the cluster is whole without its member: %v", err)
		}
		s.change(func() { s.preStop = nil })
	})
}

func podsBadImage(t *testing.T, image string) {
	s, k := wholeSet(t, image, 3)
	bad, good := image+".bad", s.image
	if err := os.WriteFile(bad, []byte("#!/nothing\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	k.load()
	serving := s.watchServing()
	s.change(func() { s.image = bad })
	var first *os.Process
	await.True(t, "the bad image to be tried again", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		p := s.pods[2]
		if p == nil || p.image != bad {
			return false
		}
		now := p.process.Load()
		first = cmp.Or(first, now)
		return now != first
	})
	s.change(func() { s.image = good })
	s.pod(2).delete()
	s.updated()
	if n := serving(); n < 2 {
		t.Errorf("%d of three served", n)
	}
	k.end("a bad image, and back")
}

func podsScale(t *testing.T, image string) {
	s, k := wholeSet(t, image, 3)
	k.load()
	s.change(func() { s.replicas = 6 })
	s.updated()
	k.whole(s, 0)
	for n := 5; n >= 3; n-- {
		k.expel(podName(n))
	}
	s.change(func() { s.replicas = 3 })
	k.whole(s, 0)
	k.end("six to three")
	for n := 3; n < 6; n++ { // the claims of expelled instances are deleted
		if err := os.RemoveAll(s.volume(n)); err != nil {
			t.Fatal(err)
		}
	}
	s.change(func() { s.replicas = 6 })
	s.updated()
	k.whole(s, 0)
	s.change(func() { s.replicas = 3 })
	await.True(t, "three pods to go", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.pods) == 3
	})
	s.change(func() { s.replicas = 6 })
	s.updated()
	k.whole(s, 0)
	k.holdsAll()
}

func podsVolume(t *testing.T, image string) {
	s, k := wholeSet(t, image, 3)
	lose := func(n int) {
		t.Helper()
		p := s.pod(n)
		s.change(func() { s.held[n] = true })
		p.delete()
		<-p.gone
		if err := os.RemoveAll(s.volume(n)); err != nil {
			t.Fatal(err)
		}
		s.change(func() { delete(s.held, n) })
	}
	lose(2)
	await.True(t, "the pod to say that its name is taken",
		func() bool {
			return strings.Contains(s.output[2].String(), "`signalbox-2` is already joined")
		})
	k.expel(podName(2))
	k.whole(s, 0)
	// The claim of an expelled instance.
	k.expel(podName(2))
	await.True(t, "the pod to say that it was expelled",
		func() bool { return strings.Contains(s.output[2].String(), "expelled") })
	lose(2)
	k.whole(s, 0)
}

func podsStopAll(t *testing.T, image string) {
	s, k := wholeSet(t, image, 3)
	k.load()
	await.True(t, "writes", func() bool { return k.written.Load() >= 10 })
	k.endLoad()
	s.stopAll()
	s.change(func() { clear(s.held) })
	k.whole(s, 0)
	k.holdsAll()
}

// stopAll deletes all pods at once, and holds their successors back.
func (s *podSet) stopAll() {
	s.t.Helper()
	var all []*pod
	for n := range s.replicas {
		all = append(all, s.pod(n))
		s.change(func() { s.held[n] = true })
	}
	for _, p := range all {
		p.delete()
	}
	for _, p := range all {
		<-p.gone
		if p.stopped == 0 || p.stopped > 90*time.Second {
			s.t.Errorf("%s stopped after %v", p.name, p.stopped)
		}
		s.t.Logf("%s stopped after %v", p.name, p.stopped)
	}
}

// podsRestored: the steps of the chart's page bring back what a backup has. All pods stop, their
// claims are deleted, and the job makes a new cluster on the claim of the first pod. With
// keepClients the clients of before go on.
func podsRestored(replicas int, keepClients bool) func(t *testing.T, image string) {
	return func(t *testing.T, image string) {
		path := map[int]string{1: "charttest/testdata/one.yaml", 3: "kubernetes.yaml"}[replicas]
		s := newPodSetOf(t, readPodTemplate(t, path, "StatefulSet"), image, replicas)
		s.updated()
		k := s.clients()
		k.load()
		await.True(t, "writes", func() bool { return k.written.Load() >= 10 })
		saved := k.written.Load()
		backups := filepath.Join(s.dir, "volume-backup")
		s.job(readPodTemplate(t, "charttest/testdata/backup.yaml", "CronJob"), map[string]string{"/backup": backups})
		k.endLoad()
		s.stopAll()
		for n := range replicas {
			if err := os.RemoveAll(s.volume(n)); err != nil {
				t.Fatal(err)
			}
		}
		files, err := filepath.Glob(backups + "/*")
		if err != nil || len(files) != 1 {
			t.Fatal(files, err)
		}
		path = map[int]string{1: "restore-one.yaml", 3: "restore.yaml"}[replicas]
		x := readPodTemplate(t, "charttest/testdata/"+path, "Job")
		x.Containers[0].Args = []string{"cluster", "restore", "/backup/" + filepath.Base(files[0])}
		if keepClients {
			x.Containers[0].Args = append(x.Containers[0].Args, "--keep-clients")
		}
		t.Log(s.job(x, map[string]string{"/backup": backups, "/data": s.volume(0)}))
		s.change(func() { delete(s.held, 0) })
		await.True(t, "the first pod to be ready", func() bool { return len(s.servingPods()) == 1 })
		if !keepClients {
			_ = k.c.Close()
			k = s.clients()
		}
		k.written.Store(saved)
		k.holdsAll()
		if replicas > 1 { // with one copy, each pod that joins would get buckets of its own
			if _, err := k.admin.SetReplicationFactor(t.Context(), "default", 3, false); err != nil {
				t.Error(err)
			}
			s.change(func() { clear(s.held) })
			k.whole(s, 0)
			k.holdsAll()
		}
	}
}
