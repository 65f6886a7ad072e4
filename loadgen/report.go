// How is a result shown to people and to programs?

package loadgen

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
)

// WriteTable writes the result for people.
func (r *Result) WriteTable(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s on %s, %s\n", r.Scenario, r.Target, r.loopText())
	var numbers []string
	for _, n := range []struct {
		n    int
		what string
	}{
		{r.Callers, "callers"}, {r.Connections, "connections"}, {r.Sessions, "sessions"}, {r.Keys, "keys"},
		{r.Watchers, "watchers"}, {r.DataSize, "bytes of data"},
	} {
		if n.n > 0 {
			numbers = append(numbers, showCount(uint64(n.n))+" "+n.what)
		}
	}
	if r.Skew > 0 {
		numbers = append(numbers, "skew "+strconv.FormatFloat(r.Skew, 'g', -1, 64))
	}
	if r.DeadlineMS > 0 {
		numbers = append(numbers, "a deadline of "+showDuration(time.Duration(r.DeadlineMS*1e6))+" for each call")
	}
	fmt.Fprintf(&b, "%s\n\n", strings.Join(numbers, ", "))
	if r.Operations > 0 || r.Callers > 0 {
		fmt.Fprintf(&b, "%s operations in %s: %s\n", showCount(r.Operations), showDuration(r.elapsed()), showRate(r.Rate))
	} else {
		fmt.Fprintf(&b, "held for %s\n", showDuration(r.elapsed()))
	}
	if r.Interrupted {
		b.WriteString("interrupted: this is what was done until then\n")
	}
	var codes []string
	for _, c := range r.codes() {
		codes = append(codes, fmt.Sprintf("%s %s", c, showCount(r.Errors[c])))
	}
	if len(codes) == 0 {
		codes = []string{"none"}
	}
	fmt.Fprintf(&b, "errors: %s\n\n", strings.Join(codes, ", "))

	tw := tabwriter.NewWriter(&b, 0, 4, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(tw, "\tcount\tmean\tmin\tp50\tp90\tp99\tp99.9\tmax\t")
	for _, s := range r.Series {
		fmt.Fprintf(tw, "%s\t%s\t", s.Name, showCount(s.Count))
		for _, us := range []float64{s.MeanUS, s.MinUS, s.P50US, s.P90US, s.P99US, s.P999US, s.MaxUS} {
			text := "-"
			if s.Count > 0 {
				text = showDuration(time.Duration(us * 1e3))
			}
			fmt.Fprintf(tw, "%s\t", text)
		}
		fmt.Fprintln(tw)
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	b.WriteString("\n")
	if s := r.Server; s != nil {
		fmt.Fprintf(&b, "server: %.2f cores", s.Cores)
		if r.Operations > 0 {
			fmt.Fprintf(&b, ", %s of CPU an operation", showDuration(time.Duration(s.CPUPerOperationUS*1e3)))
		}
		fmt.Fprintf(&b, ", %s of memory (%s before)\n", showBytes(float64(s.Memory)), showBytes(float64(s.MemoryBefore)))
		if r.Sessions > 0 && r.Callers == 0 {
			fmt.Fprintf(&b, "server, a session: %s of CPU a second, %s of memory, of which heap %s\n",
				showDuration(time.Duration(s.CPUPerSessionUS*1e3)), showBytes(s.MemoryPerSession), showBytes(s.HeapPerSession))
		}
	}
	if r.Operations > 0 {
		fmt.Fprintf(&b,
			"this process: %.2f cores, %s of CPU an operation, the client included\n",
			r.Own.Cores, showDuration(time.Duration(r.Own.CPUPerOperationUS*1e3)))
		if r.Loop == "open" {
			fmt.Fprintf(&b, "this process's timer was late by up to %s (p99), which latencies include\n",
				showDuration(time.Duration(r.Own.LateP99US*1e3)))
		}
	}
	for line := range strings.Lines(b.String()) {
		if _, err := fmt.Fprintln(w, strings.TrimRight(line, " \n")); err != nil {
			return err
		}
	}
	return nil
}

func (r *Result) loopText() string {
	if r.Loop == "open" {
		return "open loop at " + showRate(r.AskedRate)
	}
	return "closed loop"
}

// WriteJSON writes the result for programs: one document, indented or in one line.
func (r *Result) WriteJSON(w io.Writer, indent bool) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	if indent {
		e.SetIndent("", "  ")
	}
	return e.Encode(r)
}

func showDuration(d time.Duration) string {
	x := float64(d)
	for _, u := range []struct {
		size float64
		name string
	}{{1, "ns"}, {1e3, "µs"}, {1e6, "ms"}} {
		if x < 999.5*u.size {
			return digits(x/u.size) + u.name
		}
	}
	return digits(x/1e9) + "s"
}

// digits writes three of a number below a thousand, and all whole ones of larger ones.
func digits(x float64) string {
	prec := 0
	switch {
	case x == 0:
	case x < 9.995:
		prec = 2
	case x < 99.95:
		prec = 1
	}
	text := strconv.FormatFloat(x, 'f', prec, 64)
	if prec > 0 {
		text = strings.TrimRight(strings.TrimRight(text, "0"), ".")
	}
	return text
}

func showCount(n uint64) string { return Thousands(strconv.FormatUint(n, 10)) }

// Thousands puts a comma before each three digits of a whole number.
func Thousands(number string) string {
	digits, negative := strings.CutPrefix(number, "-")
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	if negative {
		return "-" + digits
	}
	return digits
}

func showRate(x float64) string {
	if x >= 100 {
		return showCount(uint64(x+0.5)) + "/s"
	}
	return digits(x) + "/s"
}

func showBytes(x float64) string {
	sign := ""
	if x < 0 {
		sign, x = "-", -x
	}
	for _, u := range []string{"B", "KB", "MB", "GB"} {
		if x < 999.5 {
			return sign + digits(x) + " " + u
		}
		x /= 1024
	}
	return sign + digits(x) + " TB"
}
