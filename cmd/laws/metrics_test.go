package laws

import (
	"go/ast"
	"path"
	"regexp"
	"strings"
	"testing"

	"github.com/signalbox-dev/signalbox/server/metrics"
)

// metricsTable is the pattern of the files that declare metrics.
const metricsTable = "server/metrics/table_*.go"

func declaresMetrics(name string) bool {
	yes, _ := path.Match(metricsTable, name)
	return yes
}

// TestMetricsAreWritten: each row of the table of metrics is written by code outside of it, and no
// row is made elsewhere.
func TestMetricsAreWritten(t *testing.T) {
	list, _ := packages(t)
	rows, used := map[string]bool{}, map[string]bool{}
	for _, p := range list {
		for name, f := range p.files {
			if !strings.HasPrefix(name, "server/") {
				continue
			}
			inside := p.dir == "server/metrics"
			ast.Inspect(f, func(n ast.Node) bool {
				switch x := n.(type) {
				case *ast.ValueSpec:
					for _, v := range x.Names {
						if declaresMetrics(name) && v.IsExported() {
							rows[v.Name] = true
						}
					}
				case *ast.SelectorExpr:
					if of, ok := x.X.(*ast.Ident); ok && of.Name == "metrics" && !inside {
						used[x.Sel.Name] = true
					}
				case *ast.Ident:
					if inside && !declaresMetrics(name) {
						used[x.Name] = true
					}
				case *ast.CompositeLit:
					if s, ok := x.Type.(*ast.SelectorExpr); ok && s.Sel.Name == "Metric" {
						t.Errorf("%s makes a metric of its own; declare it in %s", name, metricsTable)
					}
				}
				return true
			})
		}
	}
	for row := range rows {
		if !used[row] {
			t.Errorf("metrics.%s is declared, and nothing writes it", row)
		}
	}
	if len(rows) != len(metrics.Table()) {
		t.Errorf("%d exported rows were found in %s, and the table has %d", len(rows), metricsTable, len(metrics.Table()))
	}
}

var metricOfOurs = regexp.MustCompile(`\bsignalbox_[a-z0-9_]+`)

// TestNamedMetricsExist: a metric that a file names is in the table.
func TestNamedMetricsExist(t *testing.T) {
	known := map[string]bool{}
	for _, m := range metrics.Table() {
		known[m.Name] = true
		if m.Type == metrics.TypeHistogram {
			known[m.Name+"_bucket"], known[m.Name+"_sum"], known[m.Name+"_count"] = true, true, true
		}
	}
	others := map[string]bool{ // former names, and made-up ones
		"CHANGELOG.md": true, "cmd/laws/words_test.go": true,
	}
	eachText(t, func(name string, text []byte) {
		if others[name] || strings.HasPrefix(name, "bench/results/") {
			return
		}
		for _, m := range metricOfOurs.FindAllString(string(text), -1) {
			if !known[m] && !strings.HasSuffix(m, "_") && !strings.HasPrefix(m, "signalbox_ydb_") && // those of the gateway are its own
				m != "signalbox_weighted" { // a policy of gRPC
				t.Errorf("%s names the metric %s, which the table of server/metrics lacks", name, m)
			}
		}
	})
}
