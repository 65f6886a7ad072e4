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

// podTemplate is a pod's template.
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

// readPodTemplate reads the pod template of an object in a file of the folder deploy.
func readPodTemplate(t *testing.T, path, kind string) podTemplate {
	t.Helper()
	b, err := os.ReadFile("../deploy/" + path)
	if err != nil {
		t.Fatal(err)
	}
	type spec struct{ Template struct{ Spec podTemplate } }
	for in := yaml.NewDecoder(bytes.NewReader(b)); ; {
		var o struct {
			Kind string
			Spec struct {
				spec `yaml:",inline"`
				Job  struct{ Spec spec } `yaml:"jobTemplate"`
			}
		}
		if err := in.Decode(&o); errors.Is(err, io.EOF) {
			t.Fatalf("%s has no %s", path, kind)
		} else if err != nil {
			t.Fatal(err)
		}
		switch {
		case o.Kind != kind:
		case kind == "CronJob":
			return o.Spec.Job.Spec.Template.Spec
		default:
			return o.Spec.Template.Spec
		}
	}
}

// newRoot makes the root of a container, for an image and volumes.
func newRoot(t *testing.T, root string, group int, volumes map[string]string) {
	t.Helper()
	dirs := []string{root + "/proc", root + "/etc/signalbox/join"}
	for at, volume := range volumes {
		dirs = append(dirs, volume, root+at)
	}
	for _, dir := range dirs {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Error(err)
		}
	}
	err := errors.Join(os.WriteFile(root+"/signalbox", nil, 0o755),
		os.WriteFile(root+"/etc/signalbox/join/join-token", []byte("a secret of this test"), 0o644))
	for _, volume := range volumes {
		err = errors.Join(err, os.Chown(volume, -1, group), os.Chmod(volume, 0o2775)) // as with fsGroup
	}
	if err != nil {
		t.Error(err)
	}
}

// container is the command of the container of a pod, in its root on a host.
func (s *podSet) container(x *podTemplate, host int, name, root, image string, volumes map[string]string) *exec.Cmd {
	vars := map[string]string{}
	env := []string{"PATH=" + os.Getenv("PATH")}
	for _, e := range x.Containers[0].Env {
		v := map[string]string{"metadata.name": name, "metadata.namespace": podNamespace}[e.From.Field.Path]
		if v == "" {
			v = os.Expand(strings.NewReplacer("$(", "${", ")", "}").Replace(e.Value),
				func(k string) string { return vars[k] })
		}
		vars[e.Name] = v
		env = append(env, e.Name+"="+v)
	}
	script := fmt.Sprintf("set -e; mount --bind %[1]s %[1]s; mount --bind %[2]s %[1]s/signalbox; ", root, image)
	for at, volume := range volumes {
		script += fmt.Sprintf("mount --bind %s %s%s; ", volume, root, at)
	}
	script += fmt.Sprintf(`mount -t proc proc %[1]s/proc; mount -o remount,bind,ro %[1]s; `+
		`exec chroot --userspec=%[2]d:%[3]d --groups=%[3]d %[1]s /signalbox "$@"`, root, x.User.ID, x.User.Group)
	cmd := inNetns(s.net.hosts[host], "sh", append([]string{"-c", script, "sh"}, x.Containers[0].Args...)...)
	cmd.Env = env
	return cmd
}

// job runs the pod of a job to its end, beside the set, and returns what it prints.
func (s *podSet) job(x podTemplate, volumes map[string]string) string {
	s.t.Helper()
	root := filepath.Join(s.dir, fmt.Sprint("job-", time.Now().UnixNano()))
	newRoot(s.t, root, x.User.Group, volumes)
	s.mu.Lock()
	hosts := s.names[podName(0)] + " signalbox." + podNamespace + ".svc.cluster.local\n"
	for name, at := range s.names {
		hosts += at + " " + name + podDomain + "\n"
	}
	s.mu.Unlock()
	if err := os.WriteFile(root+"/etc/hosts", []byte(hosts), 0o644); err != nil {
		s.t.Fatal(err)
	}
	out, err := s.container(&x, s.net.addHost(), "job", root, s.image, volumes).CombinedOutput()
	if err != nil {
		s.t.Fatalf("the job %v: %v\n%s", x.Containers[0].Args, err, out)
	}
	return string(out)
}

// run is kubelet: it runs the container, again and again with a back-off, until the pod is deleted.
func (s *podSet) run(p *pod, log io.Writer) {
	defer close(p.gone)
	defer p.ready.Store(false)
	for pause := backOff; ; pause *= 2 {
		cmd := s.container(&s.template, p.host, p.name, p.root, p.image, map[string]string{"/data": s.volume(p.ordinal)})
		cmd.Stderr = log
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
