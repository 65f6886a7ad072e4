package metrics

import (
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

A name ends with its unit, if it has one. A counter's name ends with ` + "`_total`" + `; histograms say so, and
all others are gauges. Labels are in braces, with the most series that one page has of them. "names"
is for labels that clients choose: ` + strconv.Itoa(DefaultMaxSeries) + ` series, unless the embedding program sets
Limits.MaxSeries. A value of a label has at most ` + strconv.Itoa(MaxLabel) + ` bytes of a name: a longer name ends with a
hash of the whole. Bytes that are not printable UTF-8 are escaped. While authentication is on, names
are left out: nodes have their number, and semaphores, rollouts and rate limits no series.
` + "`--metrics-names`" + ` shows the paths of nodes, or all names.

Dashboards and alert rules are in [server/deploy/monitoring](../deploy/monitoring/README.md).
`)
	last := ""
	for _, m := range table {
		if m.Section != last {
			last = m.Section
			fmt.Fprintf(&b, "\n## %s\n\n", last)
		}
		name, most := "`"+m.Name+"`", strconv.Itoa(m.Cap)
		if m.Cap == ByNames {
			most = "names"
		}
		if len(m.Labels) > 0 {
			name = "`" + m.Name + "{" + strings.Join(m.Labels, ",") + "}` (" + most + ")"
		}
		if m.Type == TypeHistogram {
			name += ", histogram"
		}
		fmt.Fprintf(&b, "- %s: %s\n", name, m.Help)
	}
	return b.String()
}
