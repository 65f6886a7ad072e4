package chaos

import (
	"cmp"
	"fmt"
	"slices"
	"testing"
	"time"
)

// What a record says.
const (
	recordCall    = "C" // a call of this kind began and ended
	recordHeld    = "H" // a lease with this token was relied on, at least from one moment to the other
	recordCounted = "N" // a counter was set to this, which was acknowledged
)

// loadRecord is a line of a load's history. Times are those of one clock of the machine.
type loadRecord struct {
	What, Name string
	Value      uint64
	From, To   time.Duration
	load       string // whose
}

func (r loadRecord) String() string {
	return fmt.Sprintf("%s %s %d %d %d\n", r.What, r.Name, r.Value, r.From, r.To)
}

func readLoadRecords(t *testing.T, path, load string) (list []loadRecord) {
	t.Helper()
	eachLine(t, path, func(text string) error {
		r := loadRecord{load: load}
		_, err := fmt.Sscanf(text, "%s %s %d %d %d\n", &r.What, &r.Name, &r.Value, &r.From, &r.To)
		list = append(list, r)
		return err
	})
	return list
}

// checkLocks: no lease is relied on while another on the same name is, and tokens rise from one
// holder to the next.
func checkLocks(list []loadRecord) error {
	held := map[string][]loadRecord{}
	for _, r := range list {
		if r.What == recordHeld {
			held[r.Name] = append(held[r.Name], r)
		}
	}
	for name, rs := range held {
		slices.SortFunc(rs, func(a, b loadRecord) int { return cmp.Compare(a.From, b.From) })
		for i := 1; i < len(rs); i++ {
			a, b := rs[i-1], rs[i]
			if b.From < a.To {
				return fmt.Errorf("%s: %s held it with token %d until %v, %s with token %d from %v", name, a.load,
					a.Value, a.To, b.load, b.Value, b.From)
			}
			if b.Value <= a.Value {
				return fmt.Errorf("%s: token %d of %s was followed by %d of %s", name, a.Value, a.load, b.Value, b.load)
			}
		}
	}
	return nil
}

// checkCounts: each count was acknowledged to one load only. A count that was acknowledged before
// another was requested is the lower one. At the end a counter reads no less than any. If no
// outcome was left open, it reads exactly as many as were acknowledged.
func checkCounts(list []loadRecord, final map[string]uint64, exact bool) error {
	counted := map[string][]loadRecord{}
	for _, r := range list {
		if r.What == recordCounted {
			counted[r.Name] = append(counted[r.Name], r)
		}
	}
	for name, rs := range counted {
		slices.SortFunc(rs, func(a, b loadRecord) int { return cmp.Compare(a.Value, b.Value) })
		for i := 1; i < len(rs); i++ {
			a, b := rs[i-1], rs[i]
			if a.Value == b.Value {
				return fmt.Errorf("%s: count %d was acknowledged to %s and to %s", name, a.Value, a.load, b.load)
			}
			if b.To < a.From {
				return fmt.Errorf("%s: count %d of %s was acknowledged before count %d of %s was asked for", name,
					b.Value, b.load, a.Value, a.load)
			}
		}
		last := rs[len(rs)-1]
		if final[name] < last.Value {
			return fmt.Errorf("%s reads %d, but %d was acknowledged to %s", name, final[name], last.Value, last.load)
		}
		if exact && final[name] != uint64(len(rs)) {
			return fmt.Errorf("%s reads %d, but %d steps were acknowledged", name, final[name], len(rs))
		}
	}
	return nil
}

// longestCall is the longest call that overlaps an interval, and what it was.
func longestCall(list []loadRecord, from, to time.Duration) (longest time.Duration, what string) {
	for _, r := range list {
		if r.What == recordCall && r.To >= from && r.From <= to && r.To-r.From > longest {
			longest, what = r.To-r.From, r.load+" "+r.Name
		}
	}
	return longest, what
}

// TestLoadRecordChecks: the judges see what they are there to see.
func TestLoadRecordChecks(t *testing.T) {
	held := func(load string, token uint64, from, to time.Duration) loadRecord {
		return loadRecord{What: recordHeld, Name: "a", Value: token, From: from, To: to, load: load}
	}
	counted := func(load string, version uint64, from, to time.Duration) loadRecord {
		return loadRecord{What: recordCounted, Name: "a", Value: version, From: from, To: to, load: load}
	}
	for name, bad := range map[string]error{
		"two holders":            checkLocks([]loadRecord{held("x", 1, 0, 10), held("y", 2, 9, 12)}),
		"a token that goes back": checkLocks([]loadRecord{held("x", 2, 0, 10), held("y", 1, 11, 12)}),
		"a version twice": checkCounts([]loadRecord{counted("x", 1, 0, 10), counted("y", 1, 0, 10)},
			map[string]uint64{"a": 1}, false),
		"a version that is lost": checkCounts([]loadRecord{counted("x", 2, 0, 10)}, map[string]uint64{"a": 1}, false),
		"an order reversed": checkCounts([]loadRecord{counted("x", 2, 0, 10), counted("y", 1, 11, 12)},
			map[string]uint64{"a": 2}, false),
		"a step too many": checkCounts([]loadRecord{counted("x", 1, 0, 10)}, map[string]uint64{"a": 2}, true),
	} {
		if bad == nil {
			t.Errorf("%s was not seen", name)
		}
	}
	good := []loadRecord{held("x", 1, 0, 10), held("y", 2, 10, 12), counted("x", 1, 0, 10), counted("y", 2, 5, 12)}
	if err := checkLocks(good); err != nil {
		t.Error(err)
	}
	if err := checkCounts(good, map[string]uint64{"a": 2}, true); err != nil {
		t.Error(err)
	}
}
