package deploy

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/server/servertest/await"
	"github.com/signalbox-dev/signalbox/server/servertest/binary"
	"github.com/signalbox-dev/signalbox/server/servertest/form"
)

// expressions are those of the panels of all dashboards, by dashboard, row and title. Their
// variables stand for all instances and nodes, and for ten seconds.
func expressions(t *testing.T) map[string][]string {
	t.Helper()
	files, err := filepath.Glob("monitoring/*.json")
	if err != nil || len(files) == 0 {
		t.Fatalf("there are no dashboards: %v", err)
	}
	variables := strings.NewReplacer("$instance", ".*", "$node", ".*", "$__rate_interval", "10s")
	all := make(map[string][]string)
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var d struct {
			UID    string
			Panels []struct {
				Type, Title string
				Targets     []struct{ Expr string }
			}
		}
		if err := json.Unmarshal(text, &d); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		row := ""
		for _, p := range d.Panels {
			if p.Type == "row" {
				row = p.Title
			}
			for _, q := range p.Targets {
				name := d.UID + " / " + row + " / " + p.Title
				all[name] = append(all[name], variables.Replace(q.Expr))
			}
		}
	}
	return all
}

// background starts a command that is killed, with all that it started, when the test ends.
func background(t *testing.T, env []string, name string, args ...string) {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Env = append(os.Environ(), env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	var out await.Log
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("%s wrote:\n%s", name, out.String())
		}
	})
}

// fetch is the body of a page; empty with an error or another status than 200.
func fetch(address string) []byte {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil
	}
	r, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	if err != nil || r.StatusCode != http.StatusOK {
		return nil
	}
	return b
}

// showsData reports whether Prometheus has a number for an expression now.
func showsData(prometheus, expr string) bool {
	var answer struct {
		Data struct {
			Result []struct {
				Value [2]any
			}
		}
	}
	if json.Unmarshal(fetch(prometheus+"/api/v1/query?query="+url.QueryEscape(expr)), &answer) != nil {
		return false
	}
	for _, r := range answer.Data.Result {
		text, _ := r.Value[1].(string)
		if v, err := strconv.ParseFloat(text, 64); err == nil && !math.IsNaN(v) {
			return true
		}
	}
	return false
}

// TestPanelsShowData: beside the script's cluster under mixed load, a real Prometheus has data for
// each expression of each panel; promtool finds nothing wrong with what an instance shows.
func TestPanelsShowData(t *testing.T) {
	form.SkipUntil(t, form.Soak, "it takes a minute and needs Prometheus")
	for _, program := range []string{"prometheus", "promtool"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("%s is not installed, so no panel is asked for; it is in Debian's package prometheus", program)
		}
	}
	dir, port := t.TempDir(), ports(t)
	s := startScript(t, filepath.Join(dir, "cluster"), port)
	env := []string{fmt.Sprintf("SIGNALBOX_ENDPOINTS=127.0.0.1:%d,127.0.0.1:%d,127.0.0.1:%d", port, port+3, port+6),
		"SIGNALBOX_TIMEOUT=60s"}
	run := func(args ...string) {
		t.Helper()
		cmd := exec.Command(binary.Signalbox(t), args...)
		cmd.Env = append(os.Environ(), env...)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", args, err, out)
		}
	}
	run("rollout", "create", "geo/base", "--location", "SAS", "--location", "MAN:1h")
	run("limit", "create", "panels", "--rate", "100")
	run("limit", "wait", "panels", "--", "true")
	run("cluster", "backup", filepath.Join(dir, "cluster.backup"))
	background(t, env, binary.Signalbox(t), "load", "mixed", "--duration", "10m")
	// A lock that is held, and one that waits: a queue stands still while its panels are asked for.
	background(t, env, binary.Signalbox(t), "lock", "panels", "--", "sleep", "600")
	background(t, env, binary.Signalbox(t), "lock", "panels", "--", "sleep", "600")

	first := ports(t)
	prometheus := fmt.Sprintf("http://127.0.0.1:%d", first)
	background(t, []string{
		"PROMETHEUS_DIR=" + filepath.Join(dir, "prometheus"), fmt.Sprintf("PROMETHEUS_PORT=%d", first),
		"PROMETHEUS_EVERY=1s", fmt.Sprintf("CLUSTER_PORT=%d", port),
	}, "./monitoring/prometheus.sh")
	await.True(t, "Prometheus to be ready", func() bool { return fetch(prometheus+"/-/ready") != nil })

	missing := expressions(t)
	panels := len(missing)
	for end := time.Now().Add(patience); len(missing) > 0 && time.Now().Before(end); time.Sleep(time.Second) {
		for panel, list := range missing {
			if missing[panel] = slices.DeleteFunc(list,
				func(expr string) bool { return showsData(prometheus, expr) }); len(missing[panel]) == 0 {
				delete(missing, panel)
			}
		}
	}
	for _, panel := range slices.Sorted(maps.Keys(missing)) {
		t.Errorf("the panel %s shows no data: %q", panel, missing[panel])
	}

	page := fetch(fmt.Sprintf("http://127.0.0.1:%d/metrics", port+2))
	cmd := exec.Command("promtool", "check", "metrics")
	cmd.Stdin = strings.NewReader(string(page))
	if out, err := cmd.CombinedOutput(); err != nil || len(page) == 0 {
		t.Errorf("promtool says of a page of %d bytes: %v\n%s", len(page), err, out)
	}
	t.Logf("%d panels show data; a page has %d bytes", panels, len(page))
	s.stop()
}
