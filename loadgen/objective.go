package loadgen

import (
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Objective is something that a result is to keep, like p99<5ms.
type Objective struct {
	Series string // whose statistic; empty is the scenario's first
	Stat   string // p50, p99.9, min, mean, max, count of a series; or a fact: rate, errors, operations, server.cores ...
	Less   bool   // else more
	Equal  bool   // the bound itself is allowed too
	Bound  float64
	text   string
}

// String is the objective as it was written.
func (o Objective) String() string { return o.text }

var (
	objectiveForm = regexp.MustCompile(`^([a-z][a-z0-9.-]*?)\s*(<=|>=|<|>)\s*([0-9][0-9a-zµ.]*)$`)
	statForm      = regexp.MustCompile(`^(?:([a-z][a-z.-]*)\.)?(p[0-9]{1,2}(?:\.[0-9]{1,4})?|min|mean|max|count)$`)
)

// facts are what an objective can be about beside the statistics of a series; true: a duration.
var facts = map[string]bool{
	"rate": false, "errors": false, "operations": false,
	"server.cores": false, "server.memory": false, "server.memory-per-session": false,
	"server.cpu-per-session": true, "server.cpu-per-operation": true,
}

// ParseObjectives reads objectives separated by commas: a statistic, one of < <= > >=, and a bound,
// which is a duration (5ms) for latencies and a plain number otherwise.
func ParseObjectives(text string) ([]Objective, error) {
	var list []Objective
	for item := range strings.SplitSeq(text, ",") {
		o, err := parseObjective(strings.TrimSpace(item))
		if err != nil {
			return nil, err
		}
		list = append(list, o)
	}
	return list, nil
}

func parseObjective(text string) (Objective, error) {
	m := objectiveForm.FindStringSubmatch(text)
	if m == nil {
		return Objective{}, fmt.Errorf("objective %q is not like p99<5ms, errors<1 or rate>10000", text)
	}
	o := Objective{Stat: m[1], Less: m[2][0] == '<', Equal: len(m[2]) == 2, text: text}
	duration, fact := facts[m[1]]
	if !fact {
		s := statForm.FindStringSubmatch(m[1])
		if s == nil {
			return o, fmt.Errorf(
				"objective %q is about something unknown; use p50, p99.9, min, mean, max or count, a series and a dot in front of those, or one of %s",
				text, strings.Join(slices.Sorted(maps.Keys(facts)), ", "))
		}
		o.Series, o.Stat = s[1], s[2]
		duration = o.Stat != "count"
	}
	if duration {
		d, err := time.ParseDuration(m[3])
		if err != nil {
			return o, fmt.Errorf("objective %q wants a duration with a unit, like 5ms or 800us", text)
		}
		o.Bound = float64(d)
		return o, nil
	}
	x, err := strconv.ParseFloat(m[3], 64)
	if err != nil || math.IsInf(x, 0) || math.IsNaN(x) {
		return o, fmt.Errorf("objective %q wants a plain number", text)
	}
	o.Bound = x
	return o, nil
}

// duration reports whether the objective's values are durations.
func (o Objective) duration() bool {
	d, fact := facts[o.Stat]
	return d || (!fact && o.Stat != "count")
}

// validate checks an objective against what a load will measure, before it runs.
func (o Objective) validate(c *Config) error {
	if _, fact := facts[o.Stat]; fact {
		if strings.HasPrefix(o.Stat, "server.") && c.Metrics == "" {
			return fmt.Errorf("objective %q needs the address of the server's metrics", o)
		}
		return nil
	}
	if o.Series != "" && !slices.Contains(c.Scenario.Series, o.Series) {
		return fmt.Errorf("objective %q is about a series that %s does not have; it has %s",
			o, c.Scenario.Name, strings.Join(c.Scenario.Series, ", "))
	}
	return nil
}

// check says, in a sentence, that a result does not keep the objective; empty when it does.
func (o Objective) check(r *Result) string {
	x, ok := r.value(o)
	if !ok {
		return fmt.Sprintf("objective %s is missed: it was not measured", o)
	}
	kept := x > o.Bound
	if o.Less {
		kept = x < o.Bound
	}
	if kept || (o.Equal && x == o.Bound) {
		return ""
	}
	was := strconv.FormatFloat(x, 'f', -1, 64)
	switch {
	case o.duration():
		was = showDuration(time.Duration(x))
	case x != math.Trunc(x):
		was = strconv.FormatFloat(x, 'f', 2, 64)
	}
	return fmt.Sprintf("objective %s is missed: it was %s", o, was)
}

// value of what an objective is about.
func (r *Result) value(o Objective) (float64, bool) {
	switch o.Stat {
	case "rate":
		return r.Rate, true
	case "errors":
		return float64(r.ErrorCount()), true
	case "operations":
		return float64(r.Operations), true
	}
	if name, ok := strings.CutPrefix(o.Stat, "server."); ok {
		if r.Server == nil {
			return 0, false
		}
		switch name {
		case "cores":
			return r.Server.Cores, true
		case "memory":
			return float64(r.Server.Memory), true
		case "memory-per-session":
			return r.Server.MemoryPerSession, r.Sessions > 0 && r.Callers == 0
		case "cpu-per-session":
			return r.Server.CPUPerSessionUS * 1e3, r.Sessions > 0 && r.Callers == 0
		default:
			return r.Server.CPUPerOperationUS * 1e3, r.Operations > 0
		}
	}
	for i := range r.Series {
		s := &r.Series[i]
		if s.Name != o.Series && (o.Series != "" || i != 0) {
			continue
		}
		switch {
		case o.Stat == "count":
			return float64(s.Count), true
		case s.Count == 0:
			return 0, false
		case o.Stat == "min":
			return s.MinUS * 1e3, true
		case o.Stat == "mean":
			return s.MeanUS * 1e3, true
		case o.Stat == "max":
			return s.MaxUS * 1e3, true
		}
		p, err := strconv.ParseFloat(o.Stat[1:], 64)
		return s.At(p).Seconds() * 1e9, err == nil
	}
	return 0, false
}
