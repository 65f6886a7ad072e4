package dashboards

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/signalbox-dev/signalbox/server/metrics"
)

var update = flag.Bool("update", false, "rewrite the dashboards")

// read returns a file of the monitoring folder.
func read(t *testing.T, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("..", name))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestDashboards: the files are made from the table of metrics, and no other is left.
func TestDashboards(t *testing.T) {
	files := dashboards()
	for name, text := range files {
		if *update {
			if err := os.WriteFile(filepath.Join("..", name), text, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if !bytes.Equal(read(t, name), text) {
			t.Errorf("%s differs from what the table gives; run make golden", name)
		}
		var d struct {
			Panels []struct {
				Type, Title, Description string
				GridPos                  struct{ X, Y, W, H int }
				Targets                  []struct{ Expr, LegendFormat string }
			}
		}
		if err := json.Unmarshal(text, &d); err != nil {
			t.Fatal(err)
		}
		taken := map[[2]int]string{}
		for _, p := range d.Panels {
			if p.Type != "row" && (p.Title == "" || p.Description == "" || len(p.Targets) == 0) {
				t.Errorf("%s: the panel %q lacks a title, a description or an expression", name, p.Title)
			}
			for x := range p.GridPos.W {
				for y := range p.GridPos.H {
					at := [2]int{p.GridPos.X + x, p.GridPos.Y + y}
					if other := taken[at]; other != "" || at[0] >= columns {
						t.Errorf("%s: the panel %q lies on %q, or beside the page", name, p.Title, other)
					}
					taken[at] = p.Title
				}
			}
		}
	}
	if len(files) != 3 {
		t.Errorf("there are %d dashboards, want 3", len(files))
	}
	here, err := filepath.Glob("../*.json")
	if err != nil || len(here) != len(files) {
		t.Errorf("the folder has %v", here)
	}
}

// TestExpressionsAreBuiltFromTheTable: a metric without the label, or of the wrong type, cannot be
// asked for.
func TestExpressionsAreBuiltFromTheTable(t *testing.T) {
	for what, f := range map[string]func(){
		"a label that there is not":      func() { now(metrics.Sessions, "node") },
		"a condition that there is not":  func() { perSecondOf(metrics.Panics, []string{`kind="x"`}) },
		"the rate of a gauge":            func() { perSecond(metrics.Sessions) },
		"the value of a counter":         func() { now(metrics.Panics) },
		"a quantile of a counter":        func() { quantile(0.5, metrics.Panics) },
		"a histogram as it is":           func() { now(metrics.WaitSeconds) },
		"a quantile by an unknown label": func() { quantile(0.5, metrics.WaitSeconds, "shard") },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s is no error", what)
				}
			}()
			f()
		}()
	}
}

var metricName = regexp.MustCompile(`\b(?:signalbox|process|go)_[a-z0-9_]+\b`)

// TestMetricsExist: rules and dashboards name metrics of the table only, and each rule and panel
// names one.
func TestMetricsExist(t *testing.T) {
	known := map[string]bool{}
	for _, m := range metrics.Table() {
		if m.Type != metrics.TypeHistogram {
			known[m.Name] = true
			continue
		}
		for _, part := range []string{"_bucket", "_sum", "_count"} {
			known[m.Name+part] = true
		}
	}
	all := expressions()
	for _, r := range rules(t) {
		all[r.Alert] = []string{r.Expr}
	}
	if len(all) < 60 {
		t.Errorf("only %d panels and rules were found", len(all))
	}
	for what, list := range all {
		for _, expr := range list {
			names := metricName.FindAllString(expr, -1)
			if len(names) == 0 {
				t.Errorf("%s: %s names no metric", what, expr)
			}
			for _, n := range names {
				if !known[n] {
					t.Errorf("%s: %s is not in the table of metrics", what, n)
				}
			}
		}
	}
}

// TestExpressionsParse has promtool read all expressions of panels, as rules.
func TestExpressionsParse(t *testing.T) {
	promtool, err := exec.LookPath("promtool")
	if err != nil {
		t.Skip("promtool is not installed, so the expressions of panels are not parsed; it is in Debian's package prometheus")
	}
	type rule struct {
		Record, Expr string
	}
	var list []rule
	for _, exprs := range expressions() {
		for _, e := range exprs {
			list = append(list, rule{fmt.Sprintf("panel:%d", len(list)), filled(e)})
		}
	}
	text, err := yaml.Marshal(map[string]any{"groups": []any{map[string]any{"name": "panels", "rules": list}}})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "panels.yml")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), promtool, "check", "rules", file).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

type alertRule struct {
	Alert, Expr string
	Annotations map[string]string
}

func rules(t *testing.T) (list []alertRule) {
	t.Helper()
	var file struct {
		Groups []struct{ Rules []alertRule }
	}
	if err := yaml.Unmarshal(read(t, "alerts.yml"), &file); err != nil {
		t.Fatal(err)
	}
	for _, g := range file.Groups {
		list = append(list, g.Rules...)
	}
	return list
}

// TestRunbook: each rule has a section of the runbook, which says what it means and what to do, and
// there is no other section.
func TestRunbook(t *testing.T) {
	var want, have []string
	page := string(read(t, "RUNBOOK.md"))
	for _, r := range rules(t) {
		want = append(want, r.Alert)
		if link := "{{ $externalLabels.runbook_base }}server/deploy/monitoring/RUNBOOK.md#" + strings.ToLower(r.Alert); r.Annotations["runbook"] != link {
			t.Errorf("the runbook of %s is %q, want %q", r.Alert, r.Annotations["runbook"], link)
		}
	}
	for _, s := range strings.Split(page, "\n## ")[1:] {
		title, text, _ := strings.Cut(s, "\n")
		have = append(have, title)
		for _, part := range []string{"**Means.**", "**Look.**", "**Do.**"} {
			if !strings.Contains(text, part) {
				t.Errorf("the section %s lacks %s", title, part)
			}
		}
	}
	if !slices.Equal(want, have) {
		t.Errorf("the runbook has the sections\n%v\nand the rules are\n%v", have, want)
	}
}
