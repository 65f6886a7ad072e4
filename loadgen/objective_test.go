package loadgen

import (
	"strings"
	"testing"
	"time"
)

func TestParseObjectives(t *testing.T) {
	for _, tc := range []struct {
		text string
		want Objective
	}{
		{"p99<5ms", Objective{Stat: "p99", Less: true, Bound: 5e6}},
		{"p99.9<=800us", Objective{Stat: "p99.9", Less: true, Equal: true, Bound: 8e5}},
		{"max < 1m30s", Objective{Stat: "max", Less: true, Bound: 90e9}},
		{"seen.p50<250ms", Objective{Series: "seen", Stat: "p50", Less: true, Bound: 250e6}},
		{"lock-pairs.pair.p99.99<1s", Objective{Series: "lock-pairs.pair", Stat: "p99.99", Less: true, Bound: 1e9}},
		{"seen-by-all.count>=10", Objective{Series: "seen-by-all", Stat: "count", Equal: true, Bound: 10}},
		{"rate>10000", Objective{Stat: "rate", Bound: 10000}},
		{"rate >= 0.5", Objective{Stat: "rate", Equal: true, Bound: 0.5}},
		{"errors<1", Objective{Stat: "errors", Less: true, Bound: 1}},
		{"server.cores<1.5", Objective{Stat: "server.cores", Less: true, Bound: 1.5}},
		{"server.cpu-per-session<5us", Objective{Stat: "server.cpu-per-session", Less: true, Bound: 5e3}},
		{"server.memory-per-session<=4096", Objective{Stat: "server.memory-per-session", Less: true, Equal: true, Bound: 4096}},
	} {
		list, err := ParseObjectives(tc.text)
		if err != nil {
			t.Errorf("%q: %v", tc.text, err)
			continue
		}
		tc.want.text = tc.text
		if len(list) != 1 || list[0] != tc.want {
			t.Errorf("%q is %+v, want %+v", tc.text, list, tc.want)
		}
	}
	if list, err := ParseObjectives("p99<5ms, errors<1,rate>10000"); err != nil || len(list) != 3 || list[1].Stat != "errors" {
		t.Errorf("three are %+v and %v", list, err)
	}
	for text, says := range map[string]string{
		"":                "is not like p99<5ms",
		"p99":             "is not like",
		"p99<":            "is not like",
		"<5ms":            "is not like",
		"p99=5ms":         "is not like",
		"p99<<5ms":        "is not like",
		"p99<-5ms":        "is not like",
		"p99<5ms,":        "is not like",
		"P99<5ms":         "is not like",
		"p99<5":           "wants a duration with a unit",
		"p99<5parsecs":    "wants a duration with a unit",
		"p99<1ms1":        "wants a duration with a unit",
		"p100<5ms":        "about something unknown",
		"p<5ms":           "about something unknown",
		"p99.99999<5ms":   "about something unknown",
		"median<5ms":      "use p50, p99.9",
		"server.disks<1":  "server.cores",
		"rate>1ms":        "wants a plain number",
		"errors<1.2.3":    "wants a plain number",
		"count>5s":        "wants a plain number",
		"errors<1 errors": "is not like",
	} {
		if list, err := ParseObjectives(text); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q gives %+v and %v, want an error that says %q", text, list, err, says)
		}
	}
}

func FuzzParseObjectives(f *testing.F) {
	for _, s := range []string{"p99<5ms,errors<1", "a.b.p99.9>=1h", "server.cores<1", "rate>1e9", "p50<µs"} {
		f.Add(s)
	}
	r := result(map[string][]time.Duration{"pair": {time.Millisecond}})
	f.Fuzz(func(t *testing.T, text string) {
		list, err := ParseObjectives(text)
		if err != nil {
			return
		}
		if n := strings.Count(text, ",") + 1; len(list) != n {
			t.Fatalf("%q has %d objectives, got %d", text, n, len(list))
		}
		for _, o := range list {
			again, err := ParseObjectives(o.String())
			if err != nil || len(again) != 1 || again[0] != o {
				t.Fatalf("%+v reads back as %+v, %v", o, again, err)
			}
			_ = o.check(r)
		}
	})
}

// result of durations by series, the first of the names in the alphabet first.
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

func TestMissed(t *testing.T) {
	r := result(map[string][]time.Duration{"handoff": {1 * time.Millisecond, 2 * time.Millisecond, 9 * time.Millisecond}, "pair": {}})
	r.Operations, r.Rate, r.Errors["OVERLOADED"] = 3, 1234.5, 2
	r.Server = &ServerCost{Cores: 0.75, CPUPerSessionUS: 4}
	for _, tc := range []struct{ text, says string }{
		{"max<10ms", ""},
		{"max<9ms", "objective max<9ms is missed: it was 9ms"},
		{"max<=9ms", ""},
		{"p50<1ms", "objective p50<1ms is missed: it was 2ms"},
		{"handoff.mean<=4ms,handoff.min>=1ms", ""},
		{"min>1ms", "objective min>1ms is missed: it was 1ms"},
		{"count>3", "objective count>3 is missed: it was 3"},
		{"rate>1000", ""},
		{"rate>2000", "objective rate>2000 is missed: it was 1234.50"},
		{"errors<1", "objective errors<1 is missed: it was 2"},
		{"operations>=3", ""},
		{"pair.p99<5s", "objective pair.p99<5s is missed: it was not measured"},
		{"server.cores<0.5", "objective server.cores<0.5 is missed: it was 0.75"},
		{"server.cpu-per-session<5us", "objective server.cpu-per-session<5us is missed: it was not measured"},
	} {
		list, err := ParseObjectives(tc.text)
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		for _, o := range list {
			got += o.check(r)
		}
		if got != tc.says {
			t.Errorf("%s: %q, want %q", tc.text, got, tc.says)
		}
	}
	r.Sessions = 10
	list, _ := ParseObjectives("server.cpu-per-session<5us")
	if s := list[0].check(r); s != "" {
		t.Error(s)
	}
}
