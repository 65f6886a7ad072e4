package chaos

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/server/servertest/await"
)

// podSet is the controller of a StatefulSet whose pods start in parallel. A pod that is deleted
// gets a successor with its name and volume, and with another address. An update goes from the
// highest pod to the lowest, and waits for those that it has replaced: a lower pod that is not
// ready it does not look at.
type podSet struct {
	t        *testing.T
	net      *network // its host 0 has the clients
	template podTemplate
	dir      string

	mu       sync.Mutex
	replicas int
	image    string            // the binary that pods are to have
	late     time.Duration     // after which a new pod's name has its address elsewhere
	held     map[int]bool      // pods that are not started yet
	give     map[int]int       // the host that the next pod gets
	preStop  func(name string) // a hook of the pods
	pods     map[int]*pod
	names    map[string]string // the address of each pod, as others see it
	output   map[int]*await.Log
}

type pod struct {
	ordinal, host, starts int
	name, image, root     string
	ready                 atomic.Bool
	deleted               chan struct{} // SIGTERM was sent
	killed                chan struct{} // the node is lost
	gone                  chan struct{}
	stopped               time.Duration // how long its container took to stop
	process               atomic.Pointer[os.Process]
}

const (
	podNamespace = "locks"
	podDomain    = ".signalbox-peers." + podNamespace + ".svc.cluster.local"
	backOff      = 10 * time.Second // before a container that ended starts again, doubled each time
)

func podName(ordinal int) string { return fmt.Sprint("signalbox-", ordinal) }

// newPodSet runs the set of kubernetes.yaml until the test ends.
func newPodSet(t *testing.T, image string, replicas int, held ...int) *podSet {
	return newPodSetOf(t, readPodTemplate(t, "kubernetes.yaml", "StatefulSet"), image, replicas, held...)
}

func newPodSetOf(t *testing.T, template podTemplate, image string, replicas int, held ...int) *podSet {
	s := &podSet{t: t, net: newNetwork(t, 1), template: template, dir: t.TempDir(), replicas: replicas, image: image,
		held: map[int]bool{}, give: map[int]int{}, pods: map[int]*pod{}, names: map[string]string{}, output: map[int]*await.Log{}}
	for _, n := range held {
		s.held[n] = true
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	t.Cleanup(func() {
		cancel()
		running.Wait()
		for _, p := range s.pods {
			close(p.killed)
			<-p.gone
		}
		for n, log := range s.output {
			if t.Failed() {
				t.Logf("%s\n%s", podName(n), log.String())
			}
		}
	})
	running.Go(func() {
		for ctx.Err() == nil {
			s.reconcile()
			time.Sleep(50 * time.Millisecond)
		}
	})
	return s
}

// reconcile does what the controller does next.
func (s *podSet) reconcile() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for n, p := range s.pods {
		select {
		case <-p.gone:
			delete(s.pods, n)
		default:
			if n >= s.replicas {
				p.delete()
			}
		}
	}
	for n := range s.replicas {
		if s.pods[n] == nil && !s.held[n] {
			s.create(n)
		}
	}
	for n := s.replicas - 1; n >= 0; n-- {
		switch p := s.pods[n]; {
		case p == nil || p.terminates():
			return
		case p.image != s.image:
			p.delete()
			return
		case !p.ready.Load():
			return
		}
	}
}

func (p *pod) delete() {
	if !p.terminates() {
		close(p.deleted)
	}
}

func (p *pod) terminates() bool {
	select {
	case <-p.deleted:
		return true
	default:
		return false
	}
}

// create makes a pod with a new address, on the volume of its name.
func (s *podSet) create(n int) {
	host, given := s.give[n]
	if delete(s.give, n); !given {
		host = s.net.addHost()
	}
	p := &pod{ordinal: n, host: host, name: podName(n), image: s.image, root: filepath.Join(s.dir, fmt.Sprintf("root-%d-%d", n, time.Now().UnixNano())),
		deleted: make(chan struct{}), killed: make(chan struct{}), gone: make(chan struct{})}
	newRoot(s.t, p.root, s.template.User.Group, map[string]string{"/data": s.volume(n)})
	if s.output[n] == nil {
		s.output[n] = new(await.Log)
	}
	s.pods[n] = p
	s.writeHosts()
	time.AfterFunc(s.late, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.pods[n] == p {
			s.names[p.name] = s.net.address(p.host)
			s.writeHosts()
		}
	})
	log := s.output[n]
	go s.run(p, log)
	go s.probe(p)
}

func (s *podSet) volume(n int) string { return filepath.Join(s.dir, "volume-"+podName(n)) }

// writeHosts tells each pod the addresses of the others, and its own.
func (s *podSet) writeHosts() {
	for _, p := range s.pods {
		text := "127.0.0.1 localhost\n" + s.net.address(p.host) + " " + p.name + " " + p.name + podDomain + "\n"
		for name, at := range s.names {
			if name != p.name {
				text += at + " " + name + podDomain + "\n"
			}
		}
		path := p.root + "/etc/hosts"
		if err := errors.Join(os.WriteFile(path+".new", []byte(text), 0o644), os.Rename(path+".new", path)); err != nil {
			s.t.Error(err)
		}
	}
}

// pod is the pod with an ordinal, once there is one that does not terminate.
func (s *podSet) pod(n int) (p *pod) {
	s.t.Helper()
	await.True(s.t, podName(n), func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		p = s.pods[n]
		return p != nil && !p.terminates()
	})
	return p
}

// hook is the pods' preStop hook.
func (s *podSet) hook() func(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.preStop
}

// change changes the set, as kubectl does.
func (s *podSet) change(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

// servingPods are the pods that are ready now, by their own word.
func (s *podSet) servingPods() (list []int) {
	s.mu.Lock()
	all := make([]*pod, 0, len(s.pods))
	for _, p := range s.pods {
		all = append(all, p)
	}
	s.mu.Unlock()
	for _, p := range all {
		if _, ok := s.get(p, "/readyz"); ok {
			list = append(list, p.ordinal)
		}
	}
	slices.Sort(list)
	return list
}
