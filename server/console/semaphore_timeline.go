package console

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/signalbox-dev/signalbox/client"
)

// timelineSpans are the times that a timeline may show.
var timelineSpans = []time.Duration{time.Minute, 5 * time.Minute, 15 * time.Minute, time.Hour, 3 * time.Hour,
	12 * time.Hour,
	24 * time.Hour, 3 * 24 * time.Hour, 7 * 24 * time.Hour, 30 * 24 * time.Hour}

// timelineSteps is how many steps a timeline has. It moves on by a step at a time: a page that
// moves with every read would be sent with every read.
const timelineSteps = 60

// leastPart is how much of a timeline a hold takes, in thousandths: one that was short can be seen.
const leastPart = 8

// maxTimelineRows bounds the rows of a timeline.
const maxTimelineRows = 40

// timeline is the model of the picture of a semaphore's holds over time.
type timeline struct {
	slots  []client.Slot // none: units have no names
	owners []client.Owner
	holds  []client.Hold // that ended
}

// timelineHold is a hold on a timeline. A zero until: it goes on.
type timelineHold struct {
	since, until time.Time
	kind, title  string
}

// table shows the holds of the past and of now by slot; by what is held at the same time where
// units have no names.
func (l *timeline) table(now time.Time) table {
	t := newTable("timeline", "Held before", "", col("Slot"), col("Holds"))
	t.Kind = "timeline"
	if len(l.slots) == 0 {
		t.Columns[0] = col("At once")
	}
	first := now
	for i := range l.holds {
		first = earlier(first, l.holds[i].Since)
		if now.Before(l.holds[i].Until) { // the server's clock is ahead of this one
			now = l.holds[i].Until
		}
	}
	span := timelineSpans[len(timelineSpans)-1]
	for _, d := range timelineSpans {
		if now.Sub(first) <= d-d/timelineSteps {
			span = d
			break
		}
	}
	step := span / timelineSteps
	end := now.Truncate(step).Add(step)
	t.Count = "in the last " + coarseAge(span) + "; green: held now, orange: its owner did not release it"
	rows := l.rows()
	if len(rows) > maxTimelineRows {
		t.Count += fmt.Sprintf("; the first %d of %d rows", maxTimelineRows, len(rows))
		rows = rows[:maxTimelineRows]
	}
	for _, r := range rows {
		b, free := &bar{}, 0 // from where on nothing is drawn yet
		for _, h := range r.holds {
			if p, ok := timelinePart(h, end.Add(-span), end); ok {
				if ahead := min(free, 1000-leastPart) - p.From; ahead > 0 { // a short hold is wider than it was long
					p.From, p.Size = p.From+ahead, max(p.Size-ahead, leastPart)
				}
				free = p.From + p.Size
				b.Parts = append(b.Parts, p)
			}
		}
		b.Label = plural(uint64(len(b.Parts)), "hold") + " in the last " + coarseAge(span)
		t.Rows = append(t.Rows, row{Key: r.name, Cells: []cell{{Text: r.name, Kind: "name"}, {Bar: b}}})
	}
	return t
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// timelinePart is a hold between two moments; false: it was over before.
func timelinePart(h timelineHold, begin, end time.Time) (barPart, bool) {
	until := h.until
	if until.IsZero() {
		until = end
	}
	if !until.After(begin) {
		return barPart{}, false
	}
	at := func(x time.Time) int {
		return int(1000 * max(0, min(1, x.Sub(begin).Seconds()/end.Sub(begin).Seconds())))
	}
	from := min(at(h.since), 1000-leastPart)
	return barPart{From: from, Size: max(leastPart, at(until)-from), Kind: h.kind, Title: h.title}, true
}

type timelineRow struct {
	name  string
	holds []timelineHold // in the order in which they began
}

// rows are the holds by slot, in the order of the semaphore's list; slots that nobody held
// have none. Units without names are in as many rows as are needed for holds not to overlap.
func (l *timeline) rows() []timelineRow {
	type named struct {
		timelineHold
		slots []string
	}
	var all []named
	for i := range l.holds {
		h := &l.holds[i]
		kind := "held"
		if h.Cause != "released" && h.Cause != "transferred" {
			kind = "over"
		}
		title := fmt.Sprintf("%s, token %s: %s, %s", holderText(h.Session, h.Description), group(h.Token),
			durationText(max(0, h.Until.Sub(h.Since))), strings.ReplaceAll(h.Cause, "_", " "))
		all = append(all, named{timelineHold{h.Since, h.Until, kind, title}, h.Slots})
	}
	for i := range l.owners {
		o := &l.owners[i]
		title := fmt.Sprintf("%s, token %s: holds it since %s", holderText(o.Session, o.Description),
			group(o.Token), clockText(o.Since))
		all = append(all, named{timelineHold{o.Since, time.Time{}, "now", title}, o.Slots})
	}
	slices.SortStableFunc(all, func(a, b named) int { return a.since.Compare(b.since) })
	var rows []timelineRow
	if len(l.slots) == 0 {
		for _, h := range all {
			i := slices.IndexFunc(rows, func(r timelineRow) bool {
				last := r.holds[len(r.holds)-1].until
				return !last.IsZero() && !last.After(h.since)
			})
			if i < 0 {
				i, rows = len(rows), append(rows, timelineRow{name: strconv.Itoa(len(rows) + 1)})
			}
			rows[i].holds = append(rows[i].holds, h.timelineHold)
		}
		return rows
	}
	for _, h := range all {
		for _, slot := range h.slots {
			i := slices.IndexFunc(rows, func(r timelineRow) bool { return r.name == slot })
			if i < 0 {
				i, rows = len(rows), append(rows, timelineRow{name: slot})
			}
			rows[i].holds = append(rows[i].holds, h.timelineHold)
		}
	}
	place := make(map[string]int, len(l.slots))
	for i := range l.slots {
		place[l.slots[i].Name] = i - len(l.slots) // those that are gone come last
	}
	slices.SortStableFunc(rows, func(a, b timelineRow) int {
		if x := place[a.name] - place[b.name]; x != 0 {
			return x
		}
		return strings.Compare(a.name, b.name)
	})
	return rows
}

// holderText is a session by its description, or by its id if it has none.
func holderText(id uint64, description string) string {
	if description == "" {
		return "session " + strconv.FormatUint(id, 10)
	}
	return visible(description)
}
