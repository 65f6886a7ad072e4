package bench

import (
	"bytes"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// sample is a report with figures of each kind.
func sample(scale float64) *Report {
	r := &Report{
		Format: format, Begun: time.Date(2031, 2, 3, 4, 5, 6, 0, time.UTC), Took: 1234, Others: 0.4, Rounds: 3, Seconds: 5,
		Machine: Machine{Cores: 2, CPU: "Some CPU @ 3.1GHz", Memory: 24 << 30, System: "linux/amd64 6.1",
			Go: "go1.99", Disk: "ext4", Fsync: 0.21, Files: 20000},
		Versions: map[string]string{Signalbox: "version 1", Etcd: "etcd Version: 9", Dragonboat: "v4"},
		Missing:  []Missing{{ZooKeeper, "ZooKeeper is not installed; apt-get install zookeeper"}},
		Failures: []Failure{{Etcd, "idle", 1, "it fell over"}},
		Notes:    []string{"the machine was busy with other things"},
	}
	add := func(work, subject string, unit Unit, values ...float64) {
		for round, v := range values {
			r.Measurements.add(round, work, subject, unit, v*scale)
		}
	}
	add("watch-5000-p99", Etcd, Milliseconds, 331, 320, 350)
	add("watch-5000-p99", Signalbox, Milliseconds, 41.2, 40, 43)
	add("pairs-1024", Etcd, PerSecond, 8800, 8000, 9100)
	add("pairs-1024", Signalbox, PerSecond, 187654, 170000, 190000)
	add("pairs-1024-cpu", Signalbox, PerCPUSecond, 250000, 250001, 250002)
	add("pairs-1024-written", Signalbox, Bytes, 140)
	add("watch-5000-cpu", Signalbox, PerCPUSecond, 1e6)
	add("proposal-1", Dragonboat, Milliseconds, 0.35, math.NaN(), 0.36)
	add("pair-1", Signalbox, Milliseconds, 0.72, 0.74, 0.73)
	add("idle-own-memory", Signalbox, Bytes, 3900)
	add("idle-own-memory", Etcd, Bytes, 57000)
	add("idle-shared-memory", Signalbox, Bytes, 420)
	add("idle-own-cpu", Signalbox, Microseconds, 4.2)
	add("three-1024", Signalbox, PerSecond, 81000, 80000, 82000)
	add("three-1024", Etcd, PerSecond, 5300, 5200, 5500)
	add("three-1024-cpu", Signalbox, PerCPUSecond, 80000, 81000, 79000)
	add("three-1024-written", Signalbox, Bytes, 430)
	add("empty-cpu", Signalbox, Microseconds, 4000)
	add("handoffs-64", Signalbox, PerSecond, 2400, 2300, 2500)
	add("handoffs-64", GoRedis, PerSecond, 4200, 4100, 4300)
	r.Measurements.sort()
	return r
}

func written(t *testing.T, f func(io.Writer) error) string {
	t.Helper()
	var b bytes.Buffer
	if err := f(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestReportAsTable(t *testing.T) { golden(t, "report.md", written(t, sample(1).WriteTable)) }

func TestReportSurvivesItsFile(t *testing.T) {
	r := sample(1)
	got := written(t, r.WriteJSON)
	golden(t, "report.json", got)
	name, err := r.Save(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if filepath.Base(name) != "2031-02-03-0405-2-cores-some-cpu-3-1ghz.json" {
		t.Errorf("it is called %s", name)
	}
	back, err := Read(name)
	if err != nil {
		t.Fatal(err)
	}
	if written(t, back.WriteJSON) != got {
		t.Error("what was read back is not what was written")
	}
	if x := back.Measurements.find("proposal-1", Dragonboat); len(x.Values) != 3 || !math.IsNaN(x.Values[1]) {
		t.Errorf("a round without a value came back as %v", x.Values)
	}
	if err := back.Err(); err == nil || !strings.Contains(err.Error(), "idle of etcd in round 2: it fell over") {
		t.Errorf("a report with a failure is no comparison, but says %v", err)
	}
}

func TestReadRefusesOtherFiles(t *testing.T) {
	for text, want := range map[string]string{"{": "is no report", `{"format": 99}`: "format 99"} {
		name := filepath.Join(t.TempDir(), "x.json")
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Read(name); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func TestReportForBenchstat(t *testing.T) {
	text := written(t, sample(1).WriteBenchmarks)
	for _, want := range []string{"Benchmark/pairs-1024/system=etcd 1 8800 /s\n", "Benchmark/pair-1/system=signalbox 1 0.72 ms\n"} {
		if !strings.Contains(text, want) {
			t.Errorf("there is no line %q:\n%s", want, text)
		}
	}
	if strings.Contains(text, "NaN") {
		t.Errorf("a round without a value is written:\n%s", text)
	}
}

func TestExcerptReplacesTheLastOne(t *testing.T) {
	page := []byte("before\n" + peersBegin + "old\n" + peersEnd + "after\n")
	once, err := sample(1).inPeersPage(page)
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "excerpt.md", string(once))
	twice, err := sample(1).inPeersPage(once)
	if err != nil || !bytes.Equal(once, twice) {
		t.Errorf("writing it again changed the page: %v", err)
	}
	if _, err := sample(1).inPeersPage([]byte("no place")); err == nil {
		t.Error("a page without a place was accepted")
	}
}

// TestAdopt: what stands around COMPARISON.md's table stays, and a measurement that failed is in the
// baseline with its reason.
func TestAdopt(t *testing.T) {
	t.Chdir(t.TempDir())
	r := sample(1)
	name, err := r.Save("reports")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir("bench", 0o755); err != nil {
		t.Fatal(err)
	}
	if err := adoptCommand([]string{name}); err == nil {
		t.Error("there is no page, and it says nothing")
	}
	if err := os.WriteFile(peersPage, []byte("before\n"+peersBegin+"old\n"+peersEnd+"after\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := adoptCommand([]string{name}); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(peersPage)
	if err != nil {
		t.Fatal(err)
	}
	page := string(b)
	around := strings.HasPrefix(page, "before\n") && strings.HasSuffix(page, "after\n")
	if !around || !strings.Contains(page, r.excerpt()) || strings.Contains(page, "old\n") {
		t.Errorf("the page is now:\n%s", page)
	}
	if back, err := Read(filepath.FromSlash(baseline)); err != nil || back.Rounds != r.Rounds ||
		!slices.Equal(back.Failures, r.Failures) {
		t.Errorf("the baseline is %v, %v", back, err)
	}
}

// TestComparisonShowsTheBaseline: the page's table is the one of the baseline, and nobody's hand has
// improved it.
func TestComparisonShowsTheBaseline(t *testing.T) {
	page, err := os.ReadFile("../" + peersPage)
	if err != nil {
		t.Fatal(err)
	}
	r, err := Read("../" + baseline)
	if err != nil {
		t.Fatal(err)
	}
	want, err := r.inPeersPage(page)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(page, want) {
		t.Error("COMPARISON.md's table is not that of the baseline; run bench adopt with the report that is to be the baseline")
	}
}

func TestDigits(t *testing.T) {
	for v, want := range map[float64]string{0: "0.00", 0.1234: "0.12", 1.005: "1.00", 12.34: "12.3", 123.4: "123",
		999.6: "1000", 1234: "1,230", 1234567: "1,230,000", -4567: "-4,570"} {
		if got := digits(v); got != want {
			t.Errorf("%v: %s, expected %s", v, got, want)
		}
	}
	for _, c := range []struct {
		v    float64
		u    Unit
		want string
	}{{512, Bytes, "512 B"}, {3900, Bytes, "3.81 KB"}, {25 << 20, Bytes, "25.0 MB"}, {24 << 30, Bytes, "24.0 GB"},
		{0.35, Milliseconds, "0.35 ms"}, {math.NaN(), PerSecond, "-"}} {
		if got := amount(c.v, c.u); got != c.want {
			t.Errorf("%v %s: %s, expected %s", c.v, c.u, got, c.want)
		}
	}
}
