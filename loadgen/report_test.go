package loadgen

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// sampleResult is a result like that of a run, from numbers that never change.
func sampleResult() *Result {
	var pair, late histogram
	for i := range 20_000 {
		d := int64(400_000 + i*i%997*3000)
		if i%500 == 0 {
			d *= 9
		}
		pair.add(d + int64(i%7)*100_000)
		late.add(d)
	}
	r := &Result{
		Scenario: "lock-pairs", Target: "signalbox at 127.0.0.1:7070", Loop: "open", AskedRate: 4000,
		Started: time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC),
		Callers: 64, Connections: 4, Sessions: 64, Keys: 10_000, Skew: 0.99, DataSize: 100, WarmUpMS: 1000,
		DurationMS: 5000, DeadlineMS: 10_000,
		ElapsedMS: 5003, Operations: 20_000, Rate: 3997.6, Errors: map[string]uint64{"OVERLOADED": 3, "unanswered": 1200},
		Series:     []Series{newSeries("pair", &pair), newSeries("from-actual-start", &late), newSeries("nothing", &histogram{})},
		Throughput: Throughput{SlotMS: 500, Operations: []uint32{1900, 2000, 2100, 2000, 1200, 2800, 2000, 2000, 2000, 2000, 10}},
		Own:        OwnCost{Cores: 0.31, CPUPerOperationUS: 77.7, LateP99US: 104},
		Server: &ServerCost{Cores: 0.62, CPUPerOperationUS: 155, CPUPerSessionUS: 9700, Memory: 54 << 20,
			MemoryBefore: 31 << 20, MemoryPerSession: 3e5, HeapPerSession: 2e5},
	}
	return r
}

// golden compares with a file of testdata, which -update rewrites.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(file, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s differs (-want +got); run the tests with -update if it should:\n%s", file, diff)
	}
}

func TestWrittenResults(t *testing.T) {
	r := sampleResult()
	var table, doc, line, picture bytes.Buffer
	if err := errors.Join(r.WritePlot(&picture), r.WriteTable(&table), r.WriteJSON(&doc, true), r.WriteJSON(&line, false)); err != nil {
		t.Fatal(err)
	}
	golden(t, "table.txt", table.Bytes())
	golden(t, "result.json", doc.Bytes())
	golden(t, "plot.svg", picture.Bytes())

	var a, b Result
	if err := errors.Join(json.Unmarshal(doc.Bytes(), &a), json.Unmarshal(line.Bytes(), &b)); err != nil ||
		a.Rate != r.Rate || b.Rate != r.Rate {
		t.Errorf("read back: %v and %v, %v", a.Rate, b.Rate, err)
	}
	if n := bytes.Count(line.Bytes(), []byte("\n")); n != 1 {
		t.Errorf("one line has %d", n)
	}
}

// result returns a result with durations by series, in the order of the alphabet.
func result(series map[string][]time.Duration) *Result {
	r := &Result{Scenario: "test", Errors: map[string]uint64{}}
	for _, name := range []string{"handoff", "pair"} {
		if list, ok := series[name]; ok {
			var c histogram
			for _, d := range list {
				c.add(int64(d))
			}
			r.Series = append(r.Series, newSeries(name, &c))
		}
	}
	return r
}

// TestPictures: whatever the numbers, the picture is XML in which all coordinates are finite.
func TestPictures(t *testing.T) {
	one := result(map[string][]time.Duration{"pair": {time.Second}})
	one.Throughput = Throughput{SlotMS: 100, Operations: []uint32{0, 0, 0}}
	many := result(map[string][]time.Duration{"pair": {1, 2, time.Hour}, "handoff": {0, 0}})
	many.Scenario, many.Target = `<"odd"> & names`, "\x00\xff"
	for i, r := range []*Result{{}, one, many, sampleResult()} {
		var b bytes.Buffer
		if err := r.WritePlot(&b); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(b.String(), "NaN") || strings.Contains(b.String(), "Inf") {
			t.Errorf("picture %d has coordinates that are none:\n%s", i, b.String())
		}
		d := xml.NewDecoder(&b)
		for {
			if _, err := d.Token(); err == io.EOF {
				break
			} else if err != nil {
				t.Errorf("picture %d: %v", i, err)
				break
			}
		}
	}
}

func TestShow(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0ns", 1: "1ns", 999: "999ns", 1000: "1µs", 1234: "1.23µs", 12_340: "12.3µs", 123_400: "123µs", 999_400: "999µs", 999_600: "1ms",
		1_500_000: "1.5ms", 99_960_000: "100ms", time.Second: "1s", 83 * time.Second: "83s", 2 * time.Hour: "7200s",
	} {
		if got := showDuration(d); got != want {
			t.Errorf("%d ns is %s, want %s", d, got, want)
		}
	}
	for x, want := range map[float64]string{0: "0 B", 999: "999 B", 1000: "0.98 KB", 2048: "2 KB", -4096: "-4 KB",
		5 << 30: "5 GB", 1 << 50: "1024 TB"} {
		if got := showBytes(x); got != want {
			t.Errorf("%v bytes are %s, want %s", x, got, want)
		}
	}
	for n, want := range map[uint64]string{0: "0", 999: "999", 1000: "1,000", 1234567: "1,234,567"} {
		if got := showCount(n); got != want {
			t.Errorf("%d is %s, want %s", n, got, want)
		}
	}
}

// TestTakeSample: what is no admin endpoint is told as such.
func TestTakeSample(t *testing.T) {
	answer := "process_cpu_seconds_total 12.5\nprocess_resident_memory_bytes 1000000\ngo_memory_classes_heap_objects_bytes 250000\ngo_memory_classes_heap_unused_bytes 50000\ngo_memory_classes_heap_stacks_bytes 200000\nodd\nodd x\n"
	code := http.StatusOK
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(code)
		_, _ = io.WriteString(w, answer)
	}))
	defer srv.Close()
	addr := strings.TrimPrefix(srv.URL, "http://")
	s, err := takeSample(t.Context(), addr)
	if err != nil || s.cpu != 12.5 || s.resident != 1_000_000 || s.heap != 500_000 {
		t.Errorf("looked and saw %+v, %v", s, err)
	}
	answer = "hello\n"
	if _, err := takeSample(t.Context(), addr); err == nil || !strings.Contains(err.Error(), "is it the admin endpoint") {
		t.Errorf("another server gives %v", err)
	}
	code = http.StatusNotFound
	if err := collectGarbage(t.Context(), addr); err == nil || !strings.Contains(err.Error(), "404") {
		t.Errorf("a missing page gives %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := collectGarbage(ctx, addr); !errors.Is(err, context.Canceled) {
		t.Errorf("a context that ended gives %v", err)
	}
}

func TestCost(t *testing.T) {
	at := time.Unix(1000, 0)
	c := newServerCost(sample{at, 1, 1_000_000, 500_000}, sample{at, 2, 3_000_000, 1_500_000},
		sample{at.Add(10 * time.Second), 4, 4_000_000, 2_000_000}, 1000, 100_000)
	want := ServerCost{Cores: 0.2, CPUPerOperationUS: 20, CPUPerSessionUS: 200, Memory: 4_000_000,
		MemoryBefore: 1_000_000, MemoryPerSession: 2000, HeapPerSession: 1000}
	if diff := cmp.Diff(want, *c); diff != "" {
		t.Error(diff)
	}
}
