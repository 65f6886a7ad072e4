package metrics

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
)

// reference is the page REFERENCE.md, written from the table.
func reference() string {
	var b strings.Builder
	b.WriteString(`# Metrics

The server writes this page from its table of metrics; ` + "`make golden`" + ` writes it again.

An instance serves its metrics at ` + "`/metrics`" + ` on its admin address, in the Prometheus text format.
Each instance shows what it sees and does itself. "The shard's leader counts" means that sums over
all instances are those of the cluster. Counters start from 0 with the process. Those with the label
` + "`shard`" + ` also do when the shard comes back to the instance. Prometheus' ` + "`rate` and `increase`" + ` allow
for both.

The cap is the most series that one page has of a metric. "names" is for labels that clients choose:
` + strconv.Itoa(DefaultMaxSeries) + ` series, unless the embedding program sets Limits.MaxSeries. A value of a label has at
most ` + strconv.Itoa(MaxLabel) + ` bytes of a name: a longer name ends with a hash of the whole. Bytes that are not printable
UTF-8 are escaped. While authentication is on, names are left out: nodes have their number, and
semaphores, rollouts and rate limits no series. ` + "`--metrics-names`" + ` shows the paths of nodes, or all names.

Dashboards and alert rules are in [server/deploy/monitoring](../deploy/monitoring/README.md).
`)
	last := ""
	for _, m := range table {
		if m.Section != last {
			last = m.Section
			fmt.Fprintf(&b, "\n## %s\n\n| metric | type | unit | labels | cap | |\n|---|---|---|---|---|---|\n", last)
		}
		unit, labels, most := cmp.Or(string(m.Unit), "1"), "", strconv.Itoa(m.Cap)
		if len(m.Labels) > 0 {
			labels = "`" + strings.Join(m.Labels, "`, `") + "`"
		}
		if m.Cap == ByNames {
			most = "names"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s | %s |\n", m.Name, m.Type, unit, labels, most, m.Help)
	}
	return b.String()
}
