package chaos

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/server/servertest/await"
	"go.yaml.in/yaml/v3"
	"golang.org/x/sys/unix"
)

// podTemplate is what the StatefulSet of kubernetes.yaml says of its pods.
type podTemplate struct {
	Grace int `yaml:"terminationGracePeriodSeconds"`
	User  struct {
		ID    int `yaml:"runAsUser"`
		Group int `yaml:"fsGroup"`
	} `yaml:"securityContext"`
	Containers []struct {
		Args []string
		Env  []struct {
			Name, Value string
			From        struct {
				Field struct {
					Path string `yaml:"fieldPath"`
				} `yaml:"fieldRef"`
			} `yaml:"valueFrom"`
		}
		Readiness struct {
			Get    struct{ Path string } `yaml:"httpGet"`
			Period int                   `yaml:"periodSeconds"`
		} `yaml:"readinessProbe"`
	}
}

func readPodTemplate(t *testing.T) (x podTemplate) {
	t.Helper()
	b, err := os.ReadFile("../deploy/kubernetes.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for in := yaml.NewDecoder(bytes.NewReader(b)); ; {
		var o struct {
			Kind string
			Spec struct{ Template struct{ Spec podTemplate } }
		}
		if err := in.Decode(&o); errors.Is(err, io.EOF) {
			t.Fatal("kubernetes.yaml has no StatefulSet")
		} else if err != nil {
			t.Fatal(err)
		} else if o.Kind == "StatefulSet" {
			return o.Spec.Template.Spec
		}
	}
}

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
	image    string        // the binary that pods are to have
	late     time.Duration // after which a new pod's name has its address elsewhere
	held     map[int]bool  // pods that are not started yet
	give     map[int]int   // the host that the next pod gets
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

// newPodSet runs a set until the test ends.
func newPodSet(t *testing.T, image string, replicas int, held ...int) *podSet {
	s := &podSet{t: t, net: newNetwork(t, 1), template: readPodTemplate(t), dir: t.TempDir(), replicas: replicas, image: image,
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
	volume := s.volume(n)
	for _, dir := range []string{volume, p.root + "/data", p.root + "/proc", p.root + "/etc/signalbox/join"} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			s.t.Error(err)
		}
	}
	err := errors.Join(os.Chown(volume, -1, s.template.User.Group), os.Chmod(volume, 0o2775), // as with fsGroup
		os.WriteFile(p.root+"/signalbox", nil, 0o755),
		os.WriteFile(p.root+"/etc/signalbox/join/join-token", []byte("a secret of this test"), 0o644))
	if err != nil {
		s.t.Error(err)
	}
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

// run is kubelet: it runs the container, again and again with a back-off, until the pod is deleted.
func (s *podSet) run(p *pod, log io.Writer) {
	defer close(p.gone)
	defer p.ready.Store(false)
	c := &s.template.Containers[0]
	vars := map[string]string{}
	env := []string{"PATH=" + os.Getenv("PATH")}
	for _, e := range c.Env {
		v := map[string]string{"metadata.name": p.name, "metadata.namespace": podNamespace}[e.From.Field.Path]
		if v == "" {
			v = os.Expand(strings.NewReplacer("$(", "${", ")", "}").Replace(e.Value), func(k string) string { return vars[k] })
		}
		vars[e.Name] = v
		env = append(env, e.Name+"="+v)
	}
	script := fmt.Sprintf(`set -e; mount --bind %[1]s %[1]s; mount --bind %[2]s %[1]s/signalbox; mount --bind %[3]s %[1]s/data; `+
		`mount -t proc proc %[1]s/proc; mount -o remount,bind,ro %[1]s; exec chroot --userspec=%[4]d:%[5]d --groups=%[5]d %[1]s /signalbox "$@"`,
		p.root, p.image, s.volume(p.ordinal), s.template.User.ID, s.template.User.Group)
	for pause := backOff; ; pause *= 2 {
		cmd := inNetns(s.net.hosts[p.host], "sh", append([]string{"-c", script, "sh"}, c.Args...)...)
		cmd.Env, cmd.Stderr = env, log
		ended := make(chan error, 1)
		if err := cmd.Start(); err != nil {
			s.t.Error(err)
			return
		}
		p.starts++
		p.process.Store(cmd.Process)
		go func() { ended <- cmd.Wait() }()
		select {
		case <-p.killed:
			_ = cmd.Process.Kill()
			<-ended
			return
		case <-p.deleted:
			began := time.Now()
			_ = cmd.Process.Signal(syscall.SIGTERM)
			select {
			case <-p.killed:
			case <-time.After(time.Duration(s.template.Grace) * time.Second):
				s.t.Errorf("%s did not stop in its grace period", p.name)
			case <-ended:
				p.stopped = time.Since(began)
				return
			}
			_ = cmd.Process.Kill()
			<-ended
			return
		case <-ended:
			p.ready.Store(false)
		}
		select {
		case <-p.deleted:
			return
		case <-p.killed:
			return
		case <-time.After(pause):
		}
	}
}

// probe asks whether a pod is ready. Two failures in a row make it one that is not.
func (s *podSet) probe(p *pod) {
	c := &s.template.Containers[0].Readiness
	for failures := 0; ; time.Sleep(time.Duration(c.Period) * time.Second) {
		select {
		case <-p.gone:
			return
		default:
		}
		if _, ok := s.get(p, c.Get.Path); ok {
			failures = 0
			p.ready.Store(true)
		} else if failures++; failures >= 2 {
			p.ready.Store(false)
		}
	}
}

// get asks a pod's port for operators.
func (s *podSet) get(p *pod, path string) (body string, ok bool) {
	h := http.Client{Timeout: time.Second, Transport: &http.Transport{DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, at string) (net.Conn, error) { return s.net.dial(ctx, 0, at) }}}
	r, err := h.Get("http://" + s.net.address(p.host) + ":7072" + path)
	if err != nil {
		return "", false
	}
	defer r.Body.Close()
	b, _ := io.ReadAll(r.Body)
	return string(b), r.StatusCode == http.StatusOK
}

// dial connects from a host.
func (n *network) dial(ctx context.Context, host int, address string) (c net.Conn, err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		space, e := os.Open("/run/netns/" + n.hosts[host])
		if e != nil {
			err = e
			return
		}
		defer space.Close()
		if err = unix.Setns(int(space.Fd()), unix.CLONE_NEWNET); err == nil {
			c, err = new(net.Dialer).DialContext(ctx, "tcp", address)
		}
	}()
	<-done
	return c, err
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

// change changes the set, as kubectl does.
func (s *podSet) change(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

// build builds the image of the pods: a program that needs nothing but itself.
func buildPodImage(t *testing.T) string {
	t.Helper()
	bin := filepath.Join(t.TempDir(), "signalbox")
	cmd := exec.Command("go", "build", "-trimpath", "-o", bin, "github.com/signalbox-dev/signalbox/cmd/signalbox")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return bin
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
