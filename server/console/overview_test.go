package console

import (
	"slices"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/client/admin"
)

// TestOfflineIsOneSentence: an overview of a cluster without one of its instances says so once, with
// what to do, and folds the rest.
func TestOfflineIsOneSentence(t *testing.T) {
	now := time.UnixMilli(1_800_000_000_000)
	instance := func(name, state string, ago time.Duration) admin.Instance {
		var i admin.Instance
		i.Name, i.Current, i.ChangedAt = name, state, uint64(now.Add(-ago).UnixMilli())
		return i
	}
	health := func(state string) admin.Health {
		return admin.Health{State: state, Confirmed: true, Problems: []string{"shard 1 has lost a copy", "shard 2 has lost a copy"},
			Losses: []string{"the loss of b would stop shard 1"}}
	}
	for _, x := range []struct {
		state     string
		instances []admin.Instance
		first     string
		folded    int
	}{
		{"degraded", []admin.Instance{instance("a", "Online", 0), instance("c", "Offline", 55*time.Second)},
			"c is offline for 55 s: start it, or expel it.", 3},
		{"degraded", []admin.Instance{instance("b", "Offline", 3*time.Minute), instance("c", "Offline", 55*time.Second)},
			"b and c are offline for 3 min: start them, or expel them.", 3},
		{"broken", []admin.Instance{instance("b", "Offline", 3*time.Hour), instance("x", "Expelled", 0)}, "b is offline for 3 h: start it.", 3},
		{"degraded", []admin.Instance{instance("a", "Online", 0)}, "Shard 1 has lost a copy.", 2},
	} {
		s := &admin.Status{Health: health(x.state), Instances: x.instances}
		notes := healthNotes(s, now)
		if len(notes) == 0 || notes[0].Text != x.first || notes[0].Fold {
			t.Errorf("%v: the first note is %+v, want %q", x.instances, notes, x.first)
			continue
		}
		rest := notes[1:]
		if len(rest) != x.folded || slices.ContainsFunc(rest, func(n note) bool { return !n.Fold }) {
			t.Errorf("%q: behind it are %+v, want %d, folded", x.first, rest, x.folded)
		}
	}
	if notes := healthNotes(&admin.Status{Health: admin.Health{State: "healthy", Confirmed: true}}, now); len(notes) != 0 {
		t.Errorf("a healthy cluster has the notes %+v", notes)
	}
}

// TestSectionsAreGrouped: each page is in one group, and the group of the current page shows its
// pages.
func TestSectionsAreGrouped(t *testing.T) {
	for _, current := range []string{"Overview", "Semaphores", "Elections", "Services", "Configurations", "Rate limits", "Rollouts",
		"Processes", "Sessions", "Nodes"} {
		groups, inner := sectionsOf(current, "/default", nil)
		n := 0
		for _, g := range groups {
			if g.Current {
				n++
			}
		}
		if n != 1 || len(groups) > 7 {
			t.Errorf("%s: %d of %d groups are current", current, n, len(groups))
		}
		if len(inner) > 0 && !slices.ContainsFunc(inner, func(s section) bool { return s.Current && s.Text == current }) {
			t.Errorf("%s is not current in %+v", current, inner)
		}
	}
}
