package deploy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/server/servertest/await"
	"go.yaml.in/yaml/v3"

	"github.com/signalbox-dev/signalbox/server"
	"github.com/signalbox-dev/signalbox/server/servertest/binary"
	"github.com/signalbox-dev/signalbox/server/servertest/port"
)

// patience bounds every wait for something that must come.
const patience = 120 * time.Second

func TestMain(m *testing.M) {
	// A shell cannot trap a signal that was ignored when it began, as ^C is in the background of a
	// shell without job control.
	if signal.Ignored(syscall.SIGINT) {
		signal.Notify(make(chan os.Signal, 1), syscall.SIGINT)
	}
	os.Exit(m.Run())
}

// ports is the first of eleven free ports in a row.
func ports(t *testing.T) int {
	t.Helper()
	first, err := port.Row(11)
	if err != nil {
		t.Fatal(err)
	}
	return first
}

// script is the cluster of the script, in a process group of its own.
type script struct {
	t    *testing.T
	cmd  *exec.Cmd
	out  await.Log
	err  await.Log
	done chan error
}

func startScript(t *testing.T, dir string, port int) *script {
	s := &script{t: t, cmd: exec.Command("./cluster.sh"), done: make(chan error, 1)}
	s.cmd.Env = append(os.Environ(), "SIGNALBOX_BIN="+binary.Signalbox(t), "CLUSTER_DIR="+dir,
		fmt.Sprintf("CLUSTER_PORT=%d", port), "CLUSTER_WAIT=100")
	s.cmd.Stdout, s.cmd.Stderr = &s.out, &s.err
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { s.done <- s.cmd.Wait() }()
	t.Cleanup(func() { _ = syscall.Kill(-s.cmd.Process.Pid, syscall.SIGKILL) })
	await.True(t, "the script's tour", func() bool {
		select {
		case err := <-s.done:
			logs, _ := filepath.Glob(filepath.Join(dir, "*.log"))
			for _, l := range logs {
				b, _ := os.ReadFile(l)
				t.Logf("%s:\n%s", l, b)
			}
			t.Fatalf("the script ended (%v): %s", err, s.err.String())
		default:
		}
		return strings.Contains(s.out.String(), "Ctrl-C stops")
	})
	return s
}

// stop ends it as Ctrl-C on a terminal does: the whole group is told.
func (s *script) stop() {
	s.t.Helper()
	if err := syscall.Kill(-s.cmd.Process.Pid, syscall.SIGINT); err != nil {
		s.t.Fatal(err)
	}
	select {
	case err := <-s.done:
		if err != nil {
			s.t.Errorf("the script ended with %v: %s", err, s.err.String())
		}
	case <-time.After(patience):
		s.t.Fatal("the script does not end")
	}
	if err := syscall.Kill(-s.cmd.Process.Pid, 0); !errors.Is(err, syscall.ESRCH) {
		s.t.Errorf("something of its group is left: %v", err)
	}
}

func ready(address string) bool { return answered(address + "/readyz") }

// answered reports whether a page is answered 200.
func answered(page string) bool {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+page, nil)
	if err != nil {
		return false
	}
	r, err := http.DefaultClient.Do(req)
	if err != nil {
		return false
	}
	defer r.Body.Close()
	_, _ = io.Copy(io.Discard, r.Body)
	return r.StatusCode == http.StatusOK
}

// alerts says which of the alert rules fire by what an instance shows, of those that compare a
// metric, or the most of it, with a number. A rule whose metric it does not show is an error.
func alerts(t *testing.T, address string) map[string]bool {
	t.Helper()
	var rules struct {
		Groups []struct {
			Rules []struct {
				Alert, Expr, For    string
				Labels, Annotations map[string]string
			}
		}
	}
	if err := yaml.Unmarshal([]byte(read(t, "monitoring/alerts.yml")), &rules); err != nil {
		t.Fatal(err)
	}
	r, err := http.Get("http://" + address + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	fires := map[string]bool{}
	for _, g := range rules.Groups {
		for _, rule := range g.Rules {
			m := regexp.MustCompile(`^(?:max(?: by \(\w+\) )?\()?(\w+)(?:\{(.*)\})?\)? (==|>) (\d+)$`).FindStringSubmatch(rule.Expr)
			if m == nil {
				continue
			}
			if _, err := time.ParseDuration(rule.For); err != nil || rule.Labels["severity"] == "" ||
				rule.Annotations["summary"] == "" || rule.Annotations["runbook"] == "" {
				t.Fatalf("rule %+v has an expression that this test cannot read, or lacks something: %v", rule, err)
			}
			bound, _ := strconv.ParseFloat(m[4], 64)
			found, fire := false, false
			for _, line := range regexp.MustCompile(`(?m)^`+m[1]+`(?:\{(.*)\})? (\S+)$`).FindAllStringSubmatch(string(body), -1) {
				found = true
				value, err := strconv.ParseFloat(line[2], 64)
				if err != nil {
					t.Fatal(err)
				}
				if strings.Contains(line[1], m[2]) && (value == bound && m[3] == "==" || value > bound && m[3] == ">") {
					fire = true
				}
			}
			if !found && !strings.Contains(rule.Expr, "by (trust)") { // this cluster has no trust
				t.Errorf("alert %s asks for %s, which an instance does not show", rule.Alert, m[1])
			}
			fires[rule.Alert] = fires[rule.Alert] || fire
		}
	}
	if len(fires) < 5 {
		t.Errorf("only the rules %v could be read", fires)
	}
	return fires
}

// TestScript: three instances become a cluster, one is killed and the others go on, Ctrl-C leaves
// nothing behind, and the next start finds what was there.
func TestScript(t *testing.T) {
	t.Parallel()
	dir, port := filepath.Join(t.TempDir(), "cluster"), ports(t)
	s := startScript(t, dir, port)
	for _, admin := range []int{2, 5, 8} {
		await.True(t, "readiness", func() bool { return ready(fmt.Sprintf("127.0.0.1:%d", port+admin)) })
	}
	await.True(t, "locks by HTTP", func() bool { return answered(fmt.Sprintf("127.0.0.1:%d/v1/ready", port+10)) })
	endpoints := fmt.Sprintf("127.0.0.1:%d,127.0.0.1:%d,127.0.0.1:%d", port, port+3, port+6)
	run := func(args ...string) string {
		t.Helper()
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		cmd := exec.CommandContext(ctx, binary.Signalbox(t), args...)
		cmd.Env = append(os.Environ(), "SIGNALBOX_ENDPOINTS="+endpoints, "SIGNALBOX_TIMEOUT=60s")
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %v\n%s", args, err, out)
		}
		return string(out)
	}
	run("config", "set", "flags", "on")
	run("cluster", "health")
	for name, fires := range alerts(t, fmt.Sprintf("127.0.0.1:%d", port+5)) {
		if fires {
			t.Errorf("alert %s fires on a cluster that is well", name)
		}
	}
	if _, err := exec.LookPath("curl"); err == nil {
		line := regexp.MustCompile(`curl -X POST .*`).FindString(s.out.String())
		if out, err := exec.Command("sh", "-c", line).Output(); err != nil || !strings.Contains(string(out), `"state":"acquired"`) {
			t.Errorf("%s: %v\n%s", line, err, out)
		}
	}
	kill := regexp.MustCompile(`kill -9 \d+`).FindString(s.out.String())
	if out, err := exec.Command("sh", "-c", kill).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v %s", kill, err, out)
	}
	if got := strings.TrimSpace(run("config", "get", "flags")); got != "on" {
		t.Errorf("with two of three: %q", got)
	}
	var firing map[string]bool
	await.True(t, "the alerts that a copy and an instance are missing", func() bool {
		for _, admin := range []int{2, 5, 8} {
			if at := fmt.Sprintf("127.0.0.1:%d", port+admin); ready(at) {
				firing = alerts(t, at)
			}
		}
		return firing["SignalboxUnderReplicated"] && firing["SignalboxQuorumAtRisk"] &&
			firing["SignalboxInstanceDown"] && !firing["SignalboxNoLeader"]
	})
	s.stop()
	s = startScript(t, dir, port)
	if got := strings.TrimSpace(run("config", "get", "flags")); got != "on" {
		t.Errorf("after a restart: %q", got)
	}
	s.stop()
	for _, name := range []string{"join-token", "1.audit"} {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", name, info, err)
		}
	}
}

func read(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// help is what a verb says of itself.
func help(t *testing.T, verb ...string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	out, err := exec.CommandContext(ctx, binary.Signalbox(t), append(verb, "--help")...).CombinedOutput()
	return string(out), err
}

// TestEnvironmentVariablesExist: every SIGNALBOX_ variable that a file here sets is one that the
// binary knows.
func TestEnvironmentVariablesExist(t *testing.T) {
	reference := read(t, "../../cmd/signalbox/REFERENCE.md")
	own := []string{"SIGNALBOX_BIN", "SIGNALBOX_TOKEN"} // of the script; of a command under a lock
	for _, name := range []string{"cluster.sh", "signalbox.service", "packages/signalbox.env", "Dockerfile", "kubernetes.yaml", "README.md", "SIZING.md"} {
		for _, v := range regexp.MustCompile(`SIGNALBOX_[A-Z_]+[A-Z]`).FindAllString(read(t, name), -1) {
			if !slices.Contains(own, v) && !strings.Contains(reference, v+"`") {
				t.Errorf("%s sets %s, which the reference does not have", name, v)
			}
		}
	}
}

// TestCommandsExist: what the page and the script show can be called so.
func TestCommandsExist(t *testing.T) {
	t.Parallel()
	helps := map[string]string{} // by verb
	help := func(verb ...string) (text string, err error) {
		name := strings.Join(verb, " ")
		if text = helps[name]; text == "" {
			text, err = help(t, verb...)
			helps[name] = text
		}
		return text, err
	}
	shown := 0
	for _, name := range []string{"README.md", "SIZING.md", "kubernetes.yaml", "cluster.sh"} {
		text := strings.ReplaceAll(read(t, name), "\\\n", " ")
		for _, m := range regexp.MustCompile(
			"(?m)(?:^|`|\"?\\$bin\"? |  )(?:signalbox )((?:serve|dev|cluster|lock|sem|config)[^`\n]*)").FindAllStringSubmatch(text, -1) {
			words := strings.Fields(m[1])
			verb := words[:1]
			if words[0] == "cluster" && len(words) > 1 {
				verb = words[:2]
			}
			shown++
			about, err := help(verb...)
			if err != nil {
				t.Errorf("%s shows %q: %v\n%s", name, m[1], err, about)
				continue
			}
			for _, w := range words {
				if strings.HasPrefix(w, "--") && !strings.Contains(about, w) {
					t.Errorf("%s shows %q, and there is no %s", name, m[1], w)
				}
			}
		}
	}
	if shown < 8 {
		t.Errorf("found %d commands", shown)
	}
	for _, m := range regexp.MustCompile("`(--[a-z-]+)").FindAllStringSubmatch(read(t, "README.md"), -1) {
		found := false
		for _, verb := range [][]string{{"serve"}, {"cluster", "expel"}, {"cluster", "backup"}, {"cluster", "restore"}} {
			about, _ := help(verb...)
			found = found || strings.Contains(about, m[1])
		}
		if !found {
			t.Errorf("the page speaks of %s, which no verb has", m[1])
		}
	}
}

// TestSizing: the page has the numbers of shards that the server chooses.
func TestSizing(t *testing.T) {
	page := read(t, "SIZING.md")
	numbers := func(row string) (list []int) {
		t.Helper()
		_, rest, ok := strings.Cut(page, "| "+row+" |")
		if !ok {
			t.Fatalf("the page has no row %q", row)
		}
		line, _, _ := strings.Cut(rest, "\n")
		for _, cell := range strings.Split(strings.Trim(line, " |"), "|") {
			n, err := strconv.Atoi(strings.TrimSpace(cell))
			if err != nil {
				t.Fatal(err)
			}
			list = append(list, n)
		}
		return list
	}
	cores := numbers("cores of an instance")
	for _, copies := range []int{1, 3} {
		shards := numbers(fmt.Sprintf("shards by default, replication factor %d", copies))
		for i, n := range cores {
			if want := server.DefaultShards(n, copies); shards[i] != want {
				t.Errorf("%d cores and %d copies: the page says %d shards, the default is %d", n, copies, shards[i], want)
			}
		}
	}
}

// TestUnit has systemd read the units, and the one of the tour, with a binary that exists.
func TestUnit(t *testing.T) {
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("there is no systemd-analyze here")
	}
	_, tour, _ := strings.Cut(read(t, "../../cmd/signalbox/TOUR.md"), "```ini\n")
	tour, _, _ = strings.Cut(tour, "```")
	dir := t.TempDir()
	program := regexp.MustCompile(`/usr/local/bin/[a-z-]+`)
	args := []string{"verify", "--man=no"}
	for _, unit := range []struct{ name, text, command string }{
		{"signalbox.service", read(t, "signalbox.service"), "signalbox serve\n"},
		{"signalbox-ydb.service", read(t, "../../cmd/signalbox-ydb/signalbox-ydb.service"), "signalbox-ydb\n"},
		{"signalbox-billing.service", tour, "signalbox lock billing -- /usr/local/bin/billing\n"},
	} {
		if !strings.Contains(unit.text, "ExecStart=/usr/local/bin/"+unit.command) {
			t.Fatalf("%s starts something else:\n%s", unit.name, unit.text)
		}
		path := filepath.Join(dir, unit.name)
		if err := os.WriteFile(path, []byte(program.ReplaceAllLiteralString(unit.text, binary.Signalbox(t))), 0o600); err != nil {
			t.Fatal(err)
		}
		args = append(args, path)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	out, err := exec.CommandContext(ctx, analyze, args...).CombinedOutput()
	if bytes.Contains(out, []byte("Failed to")) && !bytes.Contains(out, []byte("signalbox")) {
		t.Skipf("systemd-analyze does not work here: %s", out)
	}
	if err != nil || regexp.MustCompile(`signalbox[a-z-]*\.service:`).Match(out) {
		t.Errorf("systemd-analyze: %v\n%s", err, out)
	}
}

// TestKubernetes: the documents parse, and what refers to each other fits.
func TestKubernetes(t *testing.T) {
	type document struct {
		Kind     string
		Metadata struct{ Name string }
		Spec     struct {
			ServiceName         string                                     `yaml:"serviceName"`
			ClusterIP           string                                     `yaml:"clusterIP"`
			PublishNotReady     bool                                       `yaml:"publishNotReadyAddresses"`
			PodManagementPolicy string                                     `yaml:"podManagementPolicy"`
			MaxUnavailable      int                                        `yaml:"maxUnavailable"`
			Selector            map[string]any                             `yaml:"selector"`
			Ports               []map[string]any                           `yaml:"ports"`
			Claims              []struct{ Metadata struct{ Name string } } `yaml:"volumeClaimTemplates"`
			Template            struct {
				Metadata struct{ Labels map[string]string }
				Spec     struct {
					Containers []struct {
						Ports         []struct{ Name string }
						Env           []struct{ Name, Value string }
						LivenessProbe struct {
							HTTPGet struct{ Path, Port string } `yaml:"httpGet"`
						} `yaml:"livenessProbe"`
						ReadinessProbe struct {
							HTTPGet struct{ Path, Port string } `yaml:"httpGet"`
						} `yaml:"readinessProbe"`
						VolumeMounts []struct{ Name, MountPath string } `yaml:"volumeMounts"`
					}
					Volumes []struct{ Name string }
				}
			}
		}
	}
	found := map[string]document{}
	in := yaml.NewDecoder(strings.NewReader(read(t, "kubernetes.yaml")))
	for {
		var d document
		if err := in.Decode(&d); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		found[d.Kind+" "+d.Metadata.Name] = d
	}
	set, ok := found["StatefulSet signalbox"]
	if !ok || len(set.Spec.Template.Spec.Containers) != 1 {
		t.Fatalf("there is no StatefulSet with one container: %v", found)
	}
	peers, ok := found["Service "+set.Spec.ServiceName]
	if !ok || peers.Spec.ClusterIP != "None" || !peers.Spec.PublishNotReady {
		t.Errorf("the StatefulSet's service %q is not a headless one that publishes pods that are not ready", set.Spec.ServiceName)
	}
	if set.Spec.PodManagementPolicy != "Parallel" {
		t.Error("pods wait for each other's readiness")
	}
	if b, ok := found["PodDisruptionBudget signalbox"]; !ok || b.Spec.MaxUnavailable != 1 {
		t.Error("more than one instance may be disrupted at a time")
	}
	for _, name := range []string{"Service signalbox", "Service " + set.Spec.ServiceName} {
		for k, v := range found[name].Spec.Selector {
			if set.Spec.Template.Metadata.Labels[k] != v {
				t.Errorf("%s selects %s=%v, which the pods are not", name, k, v)
			}
		}
	}
	c := set.Spec.Template.Spec.Containers[0]
	if c.LivenessProbe.HTTPGet.Path != "/healthz" || c.ReadinessProbe.HTTPGet.Path != "/readyz" {
		t.Error("the probes ask for something else")
	}
	for _, p := range []string{c.LivenessProbe.HTTPGet.Port, c.ReadinessProbe.HTTPGet.Port} {
		if !slices.ContainsFunc(c.Ports, func(x struct{ Name string }) bool { return x.Name == p }) {
			t.Errorf("a probe goes to port %q, which there is not", p)
		}
	}
	for _, m := range c.VolumeMounts {
		there := slices.ContainsFunc(set.Spec.Template.Spec.Volumes, func(x struct{ Name string }) bool { return x.Name == m.Name })
		for _, x := range set.Spec.Claims {
			there = there || x.Metadata.Name == m.Name
		}
		if !there {
			t.Errorf("volume %q is mounted, and there is none", m.Name)
		}
	}
	for _, e := range c.Env {
		if strings.HasPrefix(e.Name, "SIGNALBOX_") && strings.Contains(e.Value, "signalbox-0") &&
			!strings.Contains(e.Value, "."+set.Spec.ServiceName+".$(NAMESPACE).svc.") {
			t.Errorf("%s does not go by the headless service: %s", e.Name, e.Value)
		}
	}
}

// TestDockerfile: what it builds and copies exists, and it names no registry.
func TestDockerfile(t *testing.T) {
	text := read(t, "Dockerfile")
	if m := regexp.MustCompile(`go build .* (\./cmd/\w+)`).FindStringSubmatch(text); m == nil {
		t.Error("it builds nothing")
	} else if _, err := fs.Stat(os.DirFS("../.."), strings.TrimPrefix(m[1], "./")); err != nil {
		t.Error(err)
	}
	for _, m := range regexp.MustCompile(`(?m)^FROM (\S+)`).FindAllStringSubmatch(text, -1) {
		if !strings.HasPrefix(m[1], "${") {
			t.Errorf("FROM %s is no argument", m[1])
		}
	}
	version := regexp.MustCompile(`(?m)^go (\d+\.\d+)`).FindStringSubmatch(read(t, "../../go.mod"))
	if version == nil || !strings.Contains(text, "golang:"+version[1]) {
		t.Errorf("the image to build with is not that of go.mod: %v", version)
	}
}
