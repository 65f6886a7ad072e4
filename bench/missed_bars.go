package bench

import (
	"fmt"
	"strings"
)

// limitSubjects are the systems that show what is physically possible, by metrics of ours. They
// have a figure in the same metric.
var limitSubjects = map[string]string{
	"pairs-1024":   LoggedEcho,
	"pairs-256":    LoggedEcho,
	"pair-1":       LoggedEcho,
	"handoffs-64":  LoggedEcho,
	"idle-own-cpu": Echo, // a message for each ping
	"empty-cpu":    LoggedEcho,
	"three-1024":   LoggedEcho,
	"three-pair-1": LoggedEcho,

	"three-handoffs-64": LoggedEcho,
	"shards-1":          LoggedEcho, // and as many groups
	"starts":            LoggedEcho,
	"starts-cpu":        LoggedEcho,
}

// limitOf is what is physically possible in the place of figures of ours. Without an experiment it
// has no metrics.
func limitOf(ours Operand) Operand {
	metric := ours.Metrics[0]
	subject := limitSubjects[metric]
	if strings.HasPrefix(metric, "rate-") {
		subject = LoggedEcho
	}
	if subject == "" {
		return Operand{}
	}
	ours.Subject = subject
	return ours
}

// atLimit is the bar with what is physically possible in the place of ours. A bar that holds ours
// against ours has it on both sides.
func (b Goal) atLimit() Goal {
	limit := limitOf(b.Ours)
	if b.Other.Subject == b.Ours.Subject {
		b.Other.Subject = limit.Subject
	}
	b.Ours = limit
	return b
}

// missed has a row for each bar that was missed: how near we are to what is physically possible,
// and whether that would have met the bar.
func (r *Report) missed() string {
	var b strings.Builder
	for _, v := range r.Verdicts() {
		if !v.Measured || v.Met {
			continue
		}
		figure, reached, itself := "-", "-", "-"
		if limit := v.Goal.atLimit(); len(limit.Ours.Metrics) > 0 {
			if l := limit.evaluate(r.Measurements); l.Ours.N > 0 {
				figure = medianText(l.Ours, l.Unit) + ", " + limit.Ours.Subject
				reached = rangeText(StatOf(ratios(v.Goal.Ours.values(r.Measurements),
					limit.Ours.values(r.Measurements))), "")
				itself = l.ratio() + ": " + l.Text()
			}
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s | %s |\n",
			v.Goal.ID, v.Goal.Text, v.Goal.Condition, medianText(v.Ours, v.Unit), figure, reached, itself)
	}
	return b.String()
}
