package metrics

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// keptMetric is a metric in the metrics.json of a kept release.
type keptMetric struct {
	Type   Type     `json:"type"`
	Labels []string `json:"labels,omitempty"`
}

func presentMetrics() map[string]keptMetric {
	present := map[string]keptMetric{}
	for _, m := range table {
		present[m.Name] = keptMetric{m.Type, m.Labels}
	}
	return present
}

// metricProblems lists the metrics that a release's dashboards and alert rules would miss.
func metricProblems(kept, present map[string]keptMetric) (problems []string) {
	for name, was := range kept {
		is, ok := present[name]
		switch {
		case !ok:
			problems = append(problems, fmt.Sprintf("%s is gone; a metric that is renamed has both names for one minor version", name))
		case is.Type != was.Type || !slices.Equal(is.Labels, was.Labels):
			problems = append(problems, fmt.Sprintf("%s is a %s with the labels %q, and was a %s with %q; give it another name",
				name, is.Type, is.Labels, was.Type, was.Labels))
		}
	}
	return problems
}

var keep = flag.String("keep", "", "the folder of a release that is being kept: make keep writes metrics.json there")

// TestKeptMetrics: the names, types and labels of the releases' metrics stay.
func TestKeptMetrics(t *testing.T) {
	if *keep != "" {
		text, err := json.MarshalIndent(presentMetrics(), "", " ")
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(*keep, "metrics.json"), append(text, '\n'), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	files, err := filepath.Glob("../testdata/releases/*/metrics.json")
	if err != nil {
		t.Fatal(err)
	}
	if len(files) == 0 {
		t.Skip("no release is kept yet")
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var kept map[string]keptMetric
		if err := json.Unmarshal(text, &kept); err != nil {
			t.Fatal(err)
		}
		for _, problem := range metricProblems(kept, presentMetrics()) {
			t.Errorf("%s: %s", file, problem)
		}
	}
}

// TestChangedMetrics: a metric that is gone, or has another type or other labels, is found.
func TestChangedMetrics(t *testing.T) {
	kept := map[string]keptMetric{"a": {TypeGauge, []string{"x"}}}
	for _, x := range []struct {
		present map[string]keptMetric
		found   bool
	}{
		{map[string]keptMetric{"a": {TypeGauge, []string{"x"}}, "b": {}}, false},
		{map[string]keptMetric{"b": {TypeGauge, []string{"x"}}}, true},
		{map[string]keptMetric{"a": {TypeCounter, []string{"x"}}}, true},
		{map[string]keptMetric{"a": {TypeGauge, []string{"x", "y"}}}, true},
	} {
		if found := metricProblems(kept, x.present); (len(found) > 0) != x.found {
			t.Errorf("%v: %q", x.present, found)
		}
	}
}
