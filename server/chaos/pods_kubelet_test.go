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
	"strings"
	"syscall"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"
	"golang.org/x/sys/unix"
)

// podTemplate is the pod template of the StatefulSet in kubernetes.yaml.
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
			v = os.Expand(strings.NewReplacer("$(", "${", ")", "}").Replace(e.Value),
				func(k string) string { return vars[k] })
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
			if hook := s.hook(); hook != nil {
				hook(p.name)
			}
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

// buildPodImage builds the image of the pods: a program that needs nothing but itself.
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
