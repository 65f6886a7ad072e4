package console

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/client"
)

// TestTimeline: holds are shown by slot, as long as they lasted, and the picture moves by steps.
func TestTimeline(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	ago := func(d time.Duration) time.Time { return now.Add(-d) }
	slots := []client.Slot{{Name: "b"}, {Name: "a"},
		{Name: "never"}}
	owners := []client.Owner{{Session: 4, Token: 9, Slots: []string{"a"}, Since: ago(24 * time.Hour)}}
	s := timeline{slots, owners, []client.Hold{
		{Token: 7, Session: 3, Description: "job@<x>", Slots: []string{"b", "gone"}, Since: ago(5 * time.Minute),
			Until: ago(2 * time.Minute), Cause: "released_by_operator"},
		{Token: 5, Session: 2, Slots: []string{"b"}, Since: ago(10 * time.Minute),
			Until: ago(10*time.Minute - time.Millisecond), Cause: "released"},
	}}
	got := s.table(now)
	if !strings.HasPrefix(got.Count, "in the last 15 min;") || got.Columns[0].Title != "Slot" {
		t.Errorf("it is about %q, by %q", got.Count, got.Columns[0].Title)
	}
	rowOf := func(t table, key string) string {
		i := slices.IndexFunc(t.Rows, func(r row) bool { return r.Key == key })
		if i < 0 {
			return ""
		}
		text := ""
		for _, p := range t.Rows[i].Cells[1].Bar.Parts {
			text += fmt.Sprintf("%s %d-%d, ", p.Kind, p.From, p.From+p.Size)
		}
		return text
	}
	// The picture ends a step of 15 s after now, so 10 minutes ago is 285 s behind its begin.
	for key, want := range map[string]string{"b": "held 316-324, over 650-850, ", "gone": "over 650-850, ",
		"a": "now 0-1000, ", "never": ""} {
		if text := rowOf(got, key); text != want {
			t.Errorf("%s: %s, want %s", key, text, want)
		}
	}
	if keys := [3]string{got.Rows[0].Key, got.Rows[1].Key, got.Rows[2].Key}; keys != [3]string{"b", "a", "gone"} {
		t.Errorf("the rows are %v", keys)
	}
	if title := got.Rows[0].Cells[1].Bar.Parts[1].Title; title != "job@<x>, token 7: 3m 00s, released by operator" {
		t.Errorf("a hold is called %q", title)
	}
	if later := s.table(now.Add(14 * time.Second)); !slices.EqualFunc(got.Rows, later.Rows, row.equal) {
		t.Errorf("the picture moves within a step")
	}
	if later := s.table(now.Add(15 * time.Second)); slices.EqualFunc(got.Rows, later.Rows, row.equal) {
		t.Errorf("the picture does not move")
	}

	// A hold that was short is not drawn over.
	s.holds = append(s.holds, client.Hold{Token: 6, Slots: []string{"b"}, Since: ago(5*time.Minute + time.Millisecond), Until: ago(5 * time.Minute)})
	if text := rowOf(s.table(now), "b"); text != "held 316-324, over 649-657, over 657-850, " {
		t.Errorf("a short hold before a long one: %s", text)
	}
	s.holds = s.holds[:2]

	// Units without names: as many rows as there are holds at once.
	s.slots, s.owners[0].Slots = nil, nil
	got = s.table(now)
	if len(got.Rows) != 2 || rowOf(got, "1") != "now 0-1000, " || rowOf(got, "2") != "held 316-324, over 650-850, " {
		t.Errorf("without slots the rows are %+v", got.Rows)
	}
	for range 60 {
		s.owners = append(s.owners, client.Owner{Session: 5, Since: ago(time.Minute)})
	}
	if got = s.table(now); len(got.Rows) != maxTimelineRows ||
		!strings.Contains(got.Count, "the first 40 of 61 rows") {
		t.Errorf("%d rows: %s", len(got.Rows), got.Count)
	}
}
