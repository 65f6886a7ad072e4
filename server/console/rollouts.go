package console

import (
	"context"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/admin"
	"github.com/signalbox-dev/signalbox/client/rollout"
)

// rolloutsPage lists the rollouts of a node.
var rolloutsPage = (&nodeList[rollout.Info]{
	path: "/rollouts",
	page: page{Section: "Rollouts", Title: "Rollouts in",
		Lead: "A rollout brings versions to the instances of one location after another."},
	table: newTable("rollouts", "Rollouts", "No rollout here.",
		col("Rollout"), col("State"), numCol("Newest version"), numCol("Locations"), numCol("Instances")),
	read: rollout.List, name: func(r *rollout.Info) string { return r.Track },
	row: func(_ context.Context, n *client.Node, r *rollout.Info) row {
		return row{Key: encodeName(r.Track), Cells: []cell{
			nameCell(r.Track, objectURL(admin.ObjectTrack, n.Path(), r.Track)), rolloutState(r),
			versionCell(r.Last), number(r.Locations), number(r.Instances),
		}}
	},
}).show

// troubles are the states of locations that somebody should know of, the gravest first.
var troubles = []rollout.State{
	rollout.Stalled, rollout.ReelectionPending, rollout.NoLeader, rollout.Empty, rollout.Paused, rollout.Excluded,
}

// rolloutState is the gravest state of a rollout's locations.
func rolloutState(r *rollout.Info) cell {
	if r.Paused {
		return stateCell(rollout.Paused)
	}
	of := func(s rollout.State) (n uint64) {
		for _, x := range r.States {
			if x == s {
				n++
			}
		}
		return n
	}
	for _, s := range troubles {
		if n := of(s); n > 0 {
			c := stateCell(s)
			c.Note = group(n) + " of " + plural(r.Locations, "location")
			return c
		}
	}
	if of(rollout.AllConverged) == r.Locations {
		return stateCell(rollout.AllConverged)
	}
	return text("under way")
}

// objectOf is a node, and the name of what a page shows of it.
func objectOf(ctx context.Context, v *viewer, q url.Values) (path string, n *client.Node, name string, err error) {
	if path, n, err = v.nodeOf(ctx, q); err == nil {
		name, err = decodeName(q.Get("name"))
	}
	return path, n, name, err
}

// nodeOf is the node that a page is about.
func (v *viewer) nodeOf(ctx context.Context, q url.Values) (path string, n *client.Node, err error) {
	if path, err = nodeOf(q); err == nil {
		n, err = v.node(ctx, path)
	}
	return path, n, err
}

// versionCell is a version; 0 is none. Versions are not grouped: people copy them.
func versionCell(version uint64) cell {
	if version == 0 {
		return cell{Text: "–", Kind: "num quiet none"}
	}
	return cell{Text: strconv.FormatUint(version, 10), Kind: "num"}
}

// rolloutPage shows a rollout: what each location has, what holds it up, and which instances.
func rolloutPage(ctx context.Context, v *viewer, q url.Values) (*page, error) {
	path, n, name, err := objectOf(ctx, v, q)
	if err != nil {
		return nil, err
	}
	track := rollout.NewReader(n, name)
	s, err := track.Describe(ctx, rollout.IncludeConfig())
	if err != nil {
		return nil, err
	}
	p := &page{
		Section: "Rollouts", Node: path, Title: "Rollout", Name: visible(name),
		Crumbs: nodeCrumbs(path, link{"Rollouts", address("/rollouts", "node", path)}),
	}
	if s.Paused {
		p.Notes = append(p.Notes, note{Tone: "warn",
			Text: "An operator paused the whole rollout: targets stay as they are."})
	}
	if s.SourceError != "" {
		p.Notes = append(p.Notes, note{Tone: "bad", Text: "Its source of versions fails: " +
			sentence(visible(s.SourceError))})
	}
	source := "–"
	if s.Config != nil {
		source = s.Config.Source.String()
	}
	p.Facts = []fact{
		{"last", "Newest version", text(versionCell(s.Last).Text)},
		{"source", "Versions come from", text(source)},
		{"instances", "Instances", text(group(s.NumInstances))},
		{"config", "Configuration", text("revision " + group(s.ConfigRevision))},
	}
	chosen := q.Get("location")
	if s.Paused {
		p.offer(ctx, v, "Resume", "resume", "node", path, "name", encodeName(name))
	} else {
		p.offer(ctx, v, "Pause", "pause", "node", path, "name", encodeName(name))
	}
	locations := newTable("locations", "Locations", "It has no location.",
		col("Location"), col("State"), numCol("Target"), col("Leaders that have it"), col("Waits for"), col("Goes on"),
		col("Target for"), col("Chosen because"))
	if v.mayOperate(ctx, path) {
		p.Lead = "Follow a location for its history, and to promote it, pause it or roll it back."
	}
	for i := range s.Locations {
		l := &s.Locations[i]
		locations.Rows = append(locations.Rows, locationRow(path, name, l))
		if l.Name == chosen {
			at := []string{"node", path, "name", encodeName(name), "location", l.Name}
			if l.Paused {
				p.offer(ctx, v, "Resume "+visible(l.Name), "resume", at...)
			} else {
				p.offer(ctx, v, "Pause "+visible(l.Name), "pause", at...)
			}
			p.offer(ctx, v, "Promote "+visible(l.Name), "promote", at...)
			p.offer(ctx, v, "Roll back "+visible(l.Name), "rollback", at...)
		}
		if l.State == rollout.Stalled {
			p.Notes = append(p.Notes, note{Tone: "bad",
				Text: fmt.Sprintf("%s is stalled: %s of %s leaders have not loaded version %d.",
					visible(l.Name), group(l.Counted-min(l.Reached, l.Counted)), group(l.Counted), l.Target)})
		}
	}
	gates := newTable("gates", "Gates to be run", "",
		col("Gate"), col("Location"), numCol("For version"), numCol("Attempt"), numCol("Inconclusive in"))
	for _, g := range s.Gates {
		gates.Rows = append(gates.Rows, row{Key: g.Location + "\x00" + g.Gate.Name, Cells: []cell{
			{Text: visible(g.Gate.Name), Kind: "name"}, text(visible(g.Location)),
			versionCell(g.Version), number(g.Attempt), {Text: age(g.Left), Kind: "num"},
		}})
	}
	p.Tables = append(p.Tables, locations)
	if len(gates.Rows) > 0 {
		p.Tables = append(p.Tables, gates)
	}
	instances, err := instanceRows(ctx, path, track)
	if err != nil {
		return nil, err
	}
	p.Tables = append(p.Tables, instances)
	location := chosen
	if location == "" && len(s.Locations) > 0 {
		location = s.Locations[0].Name
	}
	if location != "" {
		history, err := historyTable(ctx, track, location)
		if err != nil {
			return nil, err
		}
		p.Tables = append(p.Tables, history)
	}
	return p, nil
}

// stateKinds are the colours of locations' states; others have none.
var stateKinds = map[rollout.State]string{
	rollout.AllConverged: "good", rollout.Stalled: "bad", rollout.ReelectionPending: "bad",
	rollout.Paused: "warn", rollout.Empty: "warn", rollout.NoLeader: "warn", rollout.Excluded: "warn",
}

func stateCell(s rollout.State) cell {
	return cell{Text: strings.ReplaceAll(strings.ToLower(s.String()), "_", " "), Kind: stateKinds[s]}
}

func locationRow(path, track string, l *rollout.LocationStatus) row {
	state := stateCell(l.State)
	if l.Rollback {
		state.Note = "rolled back by an operator"
	}
	target := versionCell(l.Target)
	if l.Stable != 0 {
		target.Note = fmt.Sprintf("for the share; others have %d", l.Stable)
	}
	progress := cell{Kind: "wide", Text: group(l.Reached) + " of " + group(l.Counted)}
	progress.Bar = usedBar(l.Reached, max(l.Counted, l.Reached))
	progress.Bar.Label = progress.Text + " leaders have it"
	for i := range progress.Bar.Parts {
		progress.Bar.Parts[i].Kind = "held"
	}
	if l.Counted == 0 {
		progress = quiet("no leader to wait for")
	}
	blocked := text(waitsFor(l))
	if len(l.BlockedBy) > 0 {
		names := make([]string, len(l.BlockedBy))
		for i, id := range l.BlockedBy {
			names[i] = visible(id)
		}
		blocked.Note = strings.Join(names, ", ")
		if more := l.Counted - min(l.Reached, l.Counted); more > uint64(len(names)) {
			blocked.Note += " and " + group(more-uint64(len(names))) + " more"
		}
		if l.BlockedFor >= time.Second {
			blocked.Note += ", for " + age(l.BlockedFor)
		}
	}
	goesOn := none()
	if l.GoesOnIn > 0 {
		goesOn = text("in " + age(l.GoesOnIn))
	}
	here := address("/rollout", "node", path, "name", encodeName(track), "location", l.Name)
	return row{Key: l.Name, Cells: []cell{
		nameCell(l.Name, here), state, target, progress, blocked, goesOn, ago(l.Age), text(reasonText(l)),
	}}
}

// locationTarget is the column of a location's target.
const locationTarget = 2

func reasonText(l *rollout.LocationStatus) string {
	if l.Target == 0 {
		return "–"
	}
	return map[rollout.Reason]string{
		rollout.ReasonInitial:  "it is the first",
		rollout.ReasonAdvance:  "it was due",
		rollout.ReasonExplicit: "the one before was reported bad",
		rollout.ReasonImplicit: "the one before could not be loaded",
		rollout.ReasonOperator: "an operator gave up the one before",
		rollout.ReasonPromote:  "an operator promoted it",
		rollout.ReasonRollback: "an operator rolled back to it",
	}[l.Reason]
}

// waitsFor is what a location waits for, in words.
func waitsFor(l *rollout.LocationStatus) string {
	switch l.State {
	case rollout.Converging, rollout.Stalled:
		return plural(l.Counted-min(l.Reached, l.Counted), "leader") + " to load it"
	case rollout.WaitingGate:
		return fmt.Sprintf("gate %s for version %d", visible(l.Gate), l.GateFor)
	}
	return map[rollout.State]string{
		rollout.Unset:             "a version that is old enough",
		rollout.AllConverged:      "a newer version",
		rollout.WaitingDelay:      "its delay",
		rollout.WaitingShare:      "the bake time of the share",
		rollout.ReelectionPending: "a version in place of a bad one",
		rollout.Paused:            "an operator: it is paused",
		rollout.Empty:             "an instance; all locations behind it wait too",
		rollout.NoLeader:          "a leader",
		rollout.Excluded:          "an operator: it is excluded",
		rollout.Ready:             "the next poll",
		rollout.Skipped:           "an instance; the next location looks past it",
	}[l.State]
}

// instanceRows shows the instances of a rollout, those that hold it up first.
func instanceRows(ctx context.Context, path string, track *rollout.Track) (table, error) {
	t := newTable("instances", "Instances", "No instance is registered.",
		col("Instance"), col("Location"), col("Role"), numCol("Has"), numCol("Is to have"), col("State"),
		col("Last report"))
	s, err := track.Describe(ctx, rollout.IncludeInstances(), rollout.MaxInstances(maxHoldings))
	if err != nil {
		return t, err
	}
	for _, first := range []bool{true, false} {
		for i := range s.Instances {
			if x := &s.Instances[i]; x.HoldsUp == first {
				t.Rows = append(t.Rows, rolloutInstanceRow(path, x))
			}
		}
	}
	if uint64(len(s.Instances)) < s.NumInstances {
		t.Count = fmt.Sprintf("%s of %s", group(uint64(len(s.Instances))), group(s.NumInstances))
	}
	return t, nil
}

func rolloutInstanceRow(path string, x *rollout.InstanceStatus) row {
	role := x.Role.String()
	if x.Demoted {
		role += ", demoted"
	}
	if x.InShare {
		role += ", in the share"
	}
	state := none()
	switch {
	case x.SaysBad:
		state = cell{Text: "reports the version bad", Kind: "bad"}
	case x.CannotLoad:
		state = cell{Text: "cannot load it", Kind: "bad"}
	case x.HoldsUp:
		state = cell{Text: "holds it up", Kind: "warn"}
	case x.Reached:
		state = cell{Text: "has it", Kind: "good"}
	}
	if x.Report.Message != "" {
		state.Note = visible(string(cut([]byte(x.Report.Message), 200)))
	} else if x.Report.Attempts > 1 {
		state.Note = group(x.Report.Attempts) + " attempts"
	}
	return row{Key: x.ID, Cells: []cell{
		nameCell(x.ID, sessionURL(path, x.Session)), text(visible(x.Location)), text(role),
		versionCell(x.Report.Current), versionCell(x.Due), state, ago(x.ReportAge),
	}}
}

func historyTable(ctx context.Context, track *rollout.Track, location string) (table, error) {
	t := newTable("history", "History of "+visible(location), "It has had no version yet.",
		column{"Version", "num id"}, col("Chosen"), col("All leaders had it"), col("Reason"), col("Passed on"))
	list, err := track.History(ctx, location)
	if err != nil {
		return t, err
	}
	for i := len(list) - 1; i >= 0 && len(t.Rows) < pageSize; i-- {
		h := &list[i]
		converged := quiet("not yet")
		if h.Converged {
			converged = text("after " + durationText(h.Age-h.ConvergedAge))
		}
		passed := text("yes")
		if h.Skip {
			passed = cell{Text: "never", Kind: "warn"}
		}
		version := versionCell(h.Version)
		version.Kind += " id"
		reason := reasonText(&rollout.LocationStatus{Target: h.Version, Reason: h.Reason})
		key := strconv.FormatUint(h.Version, 10) + " " + strconv.FormatUint(h.Log, 10)
		t.Rows = append(t.Rows, row{Key: key, Cells: []cell{version, since(h.At), converged, text(reason), passed}})
	}
	return t, nil
}
