package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/signalbox-dev/signalbox/client/rollout"
	"github.com/signalbox-dev/signalbox/cmd/signalbox/terminal"
)

// ms is a duration as JSON has it.
func ms(d time.Duration) millis { return millis(d.Milliseconds()) }

// versionText is a version; none is "-".
func versionText(v uint64) string {
	if v == 0 {
		return "-"
	}
	return fmt.Sprint(v)
}

// waitReasons say, by state, why a location waits.
var waitReasons = map[rollout.State]string{
	rollout.Unset: "a version that is old enough", rollout.AllConverged: "a newer version",
	rollout.WaitingDelay: "its delay", rollout.WaitingShare: "the share's bake time",
	rollout.ReelectionPending: "a version in place of a bad one", rollout.Paused: "an operator: paused",
	rollout.Empty:    "an instance: all behind it wait too",
	rollout.NoLeader: "a leader", rollout.Excluded: "an operator: excluded", rollout.Ready: "the next poll",
}

func waitReason(l *rollout.LocationStatus) string {
	switch l.State {
	case rollout.Converging, rollout.Stalled:
		return fmt.Sprintf("%d of %d to load it", l.Counted-min(l.Reached, l.Counted), l.Counted)
	case rollout.WaitingGate:
		return fmt.Sprintf("gate %s for %d", l.Gate, l.GateFor)
	}
	return waitReasons[l.State]
}

// locationRow is a line of the status table: the version, the progress, the instances that block
// it, and when it continues.
func locationRow(l *rollout.LocationStatus) row {
	blocked := strings.Join(l.BlockedBy, ", ")
	if more := l.Counted - min(l.Reached, l.Counted); more > uint64(len(l.BlockedBy)) && len(l.BlockedBy) > 0 {
		blocked += fmt.Sprintf(" and %d more", more-uint64(len(l.BlockedBy)))
	}
	target := versionText(l.Target)
	if l.Stable != 0 {
		target = fmt.Sprintf("%d (share; others %d)", l.Target, l.Stable)
	}
	return row{
		{"location", "location", l.Name}, {"state", "state", l.State.String()}, {"target", "", l.Target},
		{"", "target", target}, {"stable", "", l.Stable},
		{"age_ms", "", ms(l.Age)}, {"", "age", terminal.Short(l.Age)}, {"reason", "", l.Reason.String()},
		{"generation", "", l.Generation},
		{"converged", "", l.Reached}, {"counted", "", l.Counted},
		{"", "converged", fmt.Sprintf("%d/%d", l.Reached, l.Counted)},
		{"instances", "", l.Instances}, {"leaders", "", l.Leaders}, {"blocked_by", "", orEmpty(l.BlockedBy)},
		{"", "blocked by", uncut(blocked)},
		{"blocked_ms", "", ms(l.BlockedFor)}, {"", "waits for", uncut(waitReason(l))},
		{"goes_on_in_ms", "", ms(l.GoesOnIn)}, {"", "goes on in", terminal.Short(l.GoesOnIn)},
		{"paused", "", l.Paused}, {"excluded", "", l.Excluded}, {"rollback", "", l.Rollback},
		{"gate", "", l.Gate}, {"gate_version", "", l.GateFor},
	}
}

func orEmpty(list []string) []string {
	if list == nil {
		return []string{}
	}
	return list
}

// rolloutRow is a line of the list.
func rolloutRow(r *rollout.Info) row {
	states := make([]string, len(r.States))
	count := make(map[string]int)
	for i, s := range r.States {
		states[i] = s.String()
		count[states[i]]++
	}
	var locations []string
	for _, s := range states { // in order of their first location
		if n := count[s]; n > 0 {
			locations = append(locations, fmt.Sprintf("%d %s", n, s))
			count[s] = 0
		}
	}
	return row{
		{"track", "track", r.Track}, {"last", "", r.Last}, {"", "newest version", versionText(r.Last)},
		{"paused", "paused", r.Paused}, {"instances", "instances", r.Instances}, {"locations", "", r.Locations},
		{"states", "", states},
		{"", "locations", uncut(strings.Join(locations, ", "))},
	}
}

func gateRunRow(g *rollout.GateRun) row {
	return row{
		{"location", "location", g.Location}, {"gate", "gate", g.Gate.Name},
		{"kind", "kind", g.Gate.Kind.String()}, {"spec", "runs", g.Gate.Spec},
		{"version", "version", g.Version}, {"attempt", "attempt", g.Attempt}, {"left_ms", "", ms(g.Left)},
		{"", "time left", terminal.Short(g.Left)},
	}
}

func followerRow(i *rollout.InstanceStatus) row {
	role := i.Role.String()
	if i.Demoted {
		role += " (demoted)"
	}
	says := i.Report.Code
	if i.Report.Message != "" {
		says += ": " + i.Report.Message
	}
	return row{
		{"id", "instance", i.ID}, {"location", "location", i.Location}, {"role", "", i.Role.String()},
		{"demoted", "", i.Demoted}, {"", "role", role},
		{"current", "", i.Report.Current}, {"", "has", versionText(i.Report.Current)}, {"due", "", i.Due},
		{"", "is to have", versionText(i.Due)},
		{"target", "", i.Report.Target}, {"code", "", i.Report.Code}, {"message", "", i.Report.Message},
		{"attempts", "attempts", i.Report.Attempts},
		{"", "says", says}, {"report_age_ms", "", ms(i.ReportAge)}, {"session_id", "", sessionID(i.Session)},
		{"incarnation", "", i.Incarnation},
		{"holds_up", "holds up", i.HoldsUp}, {"meta", "", i.Meta},
	}
}

func printRollout(p *printer, s *rollout.Status, instances bool) error {
	r := row{
		{"track", "track", s.Track}, {"revision", "config revision", s.ConfigRevision},
		{"last", "newest version", s.Last}, {"paused", "paused", s.Paused},
		{"instances", "", s.NumInstances}, {"", "instances", s.NumInstances},
	}
	if s.SourceError != "" {
		r = append(r, field{"source_error", "source", uncut(s.SourceError)})
	}
	r = append(r, field{"locations", "locations", rowsOf(s.Locations, locationRow)},
		field{"gates", "gates to run", rowsOf(s.Gates, gateRunRow)})
	if instances {
		r = append(r, field{"members", "instances", rowsOf(s.Instances, followerRow)})
	}
	return p.item(r)
}

func historyRow(r *rollout.HistoryEntry) row {
	converged := "-"
	if r.Converged {
		converged = terminal.Short(r.Age-r.ConvergedAge) + " later"
		if r.Age == r.ConvergedAge {
			converged = "at once"
		}
	}
	return row{
		{"version", "version", r.Version}, {"at", "", timestamp{r.At}}, {"log_ms", "", r.Log},
		{"converged_log_ms", "", r.ConvergedLog}, {"age_ms", "", ms(r.Age)}, {"", "age", terminal.Short(r.Age)},
		{"reason", "reason", r.Reason.String()},
		{"converged", "", r.Converged}, {"", "converged", converged}, {"skip", "skipped", r.Skip},
	}
}

// rolloutEventRow is a line of watch.
func rolloutEventRow(e *rollout.Event) row {
	r := row{
		{"time", "time", clockTime{time.UnixMilli(int64(min(e.Wall, 1<<62)))}},
		{"event", "event", e.Kind.String()}, {"location", "location", e.Location},
	}
	if e.State != 0 {
		r = append(r, field{"state", "state", e.State.String()})
	}
	if e.Version != 0 {
		r = append(r, field{"version", "version", labelled{"version", e.Version}})
	}
	if e.From != 0 {
		r = append(r, field{"from", "from", labelled{"from", e.From}})
	}
	if e.Reason != 0 {
		r = append(r, field{"reason", "", e.Reason.String()})
	}
	return append(r, field{"instance", "instance", e.Instance}, field{"gate", "gate", e.Gate},
		field{"attempt", "", e.Attempt}, field{"share", "", e.Share},
		field{"generation", "", e.Generation}, field{"text", "why", uncut(e.Text)})
}

// locationStateRow is the state of a location at the start of watch.
func locationStateRow(l *rollout.LocationStatus) row {
	return row{
		{"time", "time", clockTime{time.Now()}}, {"event", "event", "stands"}, {"location", "location", l.Name},
		{"state", "state", l.State.String()},
		{"version", "version", labelled{"version", l.Target}},
		{"", "converged", fmt.Sprintf("%d/%d", l.Reached, l.Counted)}, {"converged", "", l.Reached},
		{"counted", "", l.Counted},
	}
}
