package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/discovery"
	"github.com/signalbox-dev/signalbox/server/servertest"
	"github.com/signalbox-dev/signalbox/server/servertest/await"
	"github.com/signalbox-dev/signalbox/server/servertest/form"
)

// proxied is a service behind a proxy, which follows a file.
type proxied struct {
	t       *testing.T
	srv     *servertest.Server
	dir     string
	members map[string]*discovery.Registration // by address
	front   string
}

func newProxied(t *testing.T, program string) *proxied {
	t.Helper()
	if _, err := exec.LookPath(program); err != nil {
		t.Skipf("%s is not installed; .ci/run installs it from Debian's packages", program)
	}
	p := &proxied{t: t, srv: servertest.Start(t, servertest.RealTime()), dir: t.TempDir(), members: map[string]*discovery.Registration{},
		front: freeAddress()}
	for i := range 3 {
		p.add(100 * (i + 1))
	}
	return p
}

// add adds a member, which answers with its address.
func (p *proxied) add(weight int) (addr string) {
	p.t.Helper()
	w := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, addr) }))
	p.t.Cleanup(w.Close)
	addr = w.Listener.Addr().String()
	c, err := client.Dial(p.t.Context(), p.srv.Addr())
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(c.CloseWithoutRelease)
	s, err := c.Session(p.t.Context(), "/default")
	if err != nil {
		p.t.Fatal(err)
	}
	p.members[addr], err = discovery.Register(p.t.Context(), s, "web", discovery.Endpoint{Addr: addr, Zone: "SAS", Weight: weight})
	if err != nil {
		p.t.Fatal(err)
	}
	return addr
}

// run starts a command that ends with the test, and writes to NAME.log in the folder.
func (p *proxied) run(name string, args ...string) {
	p.t.Helper()
	cmd := exec.CommandContext(p.t.Context(), name, args...)
	cmd.Env = append(os.Environ(), "SIGNALBOX_ENDPOINTS="+p.srv.Addr())
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = patience
	path := filepath.Join(p.dir, name+".log")
	out, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		p.t.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	_ = out.Close()
	p.t.Cleanup(func() { // before the test's context ends
		_ = cmd.Process.Signal(os.Interrupt)
		_ = cmd.Wait()
		if p.t.Failed() {
			said, _ := os.ReadFile(path)
			p.t.Logf("%s:\n%s", name, said)
		}
	})
}

// write writes a file of the folder, in which DIR is the folder and FRONT the proxy's address.
func (p *proxied) write(name, text string) string {
	p.t.Helper()
	path := filepath.Join(p.dir, name)
	if err := os.WriteFile(path, []byte(strings.NewReplacer("DIR", p.dir, "FRONT", p.front).Replace(text)), 0o600); err != nil {
		p.t.Fatal(err)
	}
	return path
}

// follow keeps the file of the members, from an example's template, and returns its path.
func (p *proxied) follow(name string, args ...string) string {
	p.t.Helper()
	path := filepath.Join(p.dir, name)
	p.run("signalbox", append([]string{"service", "watch", "web", "--file", path}, args...)...)
	await.True(p.t, "the file", func() bool {
		text, _ := os.ReadFile(path)
		for addr := range p.members {
			if !strings.Contains(string(text), addr) {
				return false
			}
		}
		return true
	})
	return path
}

// get is the address of the member that answers.
func (p *proxied) get() (string, error) {
	resp, err := http.Get("http://" + p.front + "/")
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", resp.Status, text)
	}
	return string(text), err
}

// answered waits until exactly these members answer, in a row of requests. No request fails.
func (p *proxied) answered(what string, want ...string) {
	p.t.Helper()
	await.True(p.t, what, func() bool {
		have := map[string]bool{}
		for range 12 {
			addr, err := p.get()
			if err != nil {
				p.t.Fatalf("%s: %v", what, err)
			}
			have[addr] = true
		}
		for _, addr := range want {
			if !have[addr] {
				return false
			}
		}
		return len(have) == len(want)
	})
}

// life is a drain, a cluster that is away, and another member.
func (p *proxied) life() {
	p.t.Helper()
	await.True(p.t, "the proxy", func() bool { _, err := p.get(); return err == nil })
	var list []string
	for addr := range p.members {
		list = append(list, addr)
	}
	p.answered("all members", list...)
	ctx, leave := context.WithCancel(p.t.Context())
	drained := make(chan error, 1)
	go func() { drained <- p.members[list[0]].Drain(ctx, discovery.MaxGrace) }()
	p.answered("a drain", list[1:]...)
	leave()
	<-drained
	p.srv.Unreachable()
	p.answered("the cluster away", list[1:]...)
	p.srv.Reachable()
	p.answered("another member", append(list[1:], p.add(100))...)
}

// TestNginx runs examples/service/nginx.tmpl: nginx follows the members of a service, and no request
// fails meanwhile.
func TestNginx(t *testing.T) {
	form.SkipUntil(t, form.Full, "it starts nginx")
	t.Parallel()
	p := newProxied(t, "nginx")
	conf := p.write("nginx.conf", `daemon off; pid DIR/pid; error_log DIR/error.log; worker_processes 1;
events {}
http {
	access_log off; client_body_temp_path DIR; proxy_temp_path DIR; fastcgi_temp_path DIR; uwsgi_temp_path DIR; scgi_temp_path DIR;
	include DIR/web.conf;
	server { listen FRONT; location / { proxy_pass http://web; } }
}
`)
	p.follow("web.conf", "--template", "examples/service/nginx.tmpl", "--exec", "nginx -c "+conf+" -s reload")
	expect(t, 0, nil, "nginx", "-t", "-c", conf)
	p.run("nginx", "-c", conf)
	p.life()
}

// TestHAProxy runs examples/service/haproxy.tmpl alike.
func TestHAProxy(t *testing.T) {
	form.SkipUntil(t, form.Full, "it starts HAProxy")
	t.Parallel()
	p := newProxied(t, "haproxy")
	conf := p.write("haproxy.cfg", `defaults
	mode http
	timeout connect 10s
	timeout client 60s
	timeout server 60s
frontend front
	bind FRONT
	default_backend web
`)
	// A master that is just starting ignores a reload, while its worker serves already.
	reload := p.write("reload", `test -e DIR/pid || exit 0
count() { grep -c Reloading DIR/haproxy.log; }
before=$(count)
while [ "$(count)" = "$before" ]; do kill -USR2 "$(cat DIR/pid)" || exit 1; sleep 0.1; done
`)
	members := p.follow("web.cfg", "--template", "examples/service/haproxy.tmpl", "--exec", "sh "+reload)
	expect(t, 0, nil, "haproxy", "-c", "-f", conf, "-f", members)
	p.run("haproxy", "-W", "-f", conf, "-f", members, "-p", filepath.Join(p.dir, "pid"))
	p.life()
}

// TestPrometheusFile: Prometheus reads the file of examples/service/prometheus.yml.
func TestPrometheusFile(t *testing.T) {
	form.SkipUntil(t, form.Full, "a Prometheus that reads a file")
	t.Parallel()
	p := newProxied(t, "promtool")
	path := p.follow("web.json", "--format", "prometheus")
	example := readPage(t, "examples/service/prometheus.yml")
	conf := p.write("prometheus.yml", strings.ReplaceAll(example, "/etc/prometheus/web.json", path))
	if out := expect(t, 0, nil, "promtool", "check", "config", conf); !strings.Contains(out, "SUCCESS") {
		t.Error(out)
	}
	found := expect(t, 0, nil, "promtool", "check", "service-discovery", conf, "web")
	for addr := range p.members {
		if !strings.Contains(found, addr) {
			t.Errorf("Prometheus does not find %s in\n%s", addr, found)
		}
	}
	if !strings.Contains(found, `"zone": "SAS"`) {
		t.Errorf("Prometheus has no zone in\n%s", found)
	}
}
