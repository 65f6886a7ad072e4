package gateway

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"
)

// TestMetrics: each counter has a row of its own, with a name as Prometheus wants it, and a
// sentence.
func TestMetrics(t *testing.T) {
	var m Metrics
	m.connections.Store(1)
	m.connectionsRefused.Store(2)
	m.streams.Store(3)
	m.sessions.Store(4)
	m.clusters.Store(5)
	m.outbox.Store(6)
	m.requests.Store(7)
	m.refused.Store(8)
	m.tokensRefused.Store(9)
	m.silent.Store(10)
	m.shed.Store(11)
	m.expired.Store(12)
	var text strings.Builder
	m.Write(&text)
	if strings.Contains(text.String(), "certificate") {
		t.Errorf("a certificate that there is not expires:\n%s", text.String())
	}
	m.certificateExpires = func() time.Time { return time.Unix(13, 0) }
	m.logDropped = func() uint64 { return 14 }
	text.Reset()
	m.Write(&text)
	rows := 0
	for x := range AllMetrics() {
		rows++
		want := fmt.Sprintf("# HELP %s %s\n# TYPE %s %s\n%s %d\n", x.Name, x.Help, x.Name, x.Kind, x.Name, rows)
		if !strings.Contains(text.String(), want) {
			t.Errorf("%q is not in\n%s", want, text.String())
		}
		if counts := strings.HasSuffix(x.Name, "_total"); !strings.HasPrefix(x.Name, "signalbox_ydb_") || counts != (x.Kind == "counter") {
			t.Errorf("%s is a %s", x.Name, x.Kind)
		}
		if !strings.HasSuffix(x.Help, ".") {
			t.Errorf("the help of %s is no sentence", x.Name)
		}
	}
	if n := reflect.TypeFor[Metrics]().NumField(); rows != n {
		t.Errorf("%d rows for %d counters", rows, n)
	}
}
