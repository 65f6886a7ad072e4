package chaos

import (
	"fmt"
	"testing"
)

// evidenceLine is one line of evidence.
type evidenceLine struct {
	what  string // L: leads; E: enters; X: leaves; K: died
	token uint64
	pid   int
}

func readEvidence(t *testing.T, dir, name string) (out []evidenceLine) {
	t.Helper()
	eachLine(t, dir+"/"+name, func(text string) error {
		var l evidenceLine
		_, err := fmt.Sscanf(text, "%s %d %d\n", &l.what, &l.token, &l.pid)
		out = append(out, l)
		return err
	})
	return out
}

// checkElection: tokens never go back, and each belongs to one process.
func checkElection(lines []evidenceLine) error {
	owner := map[uint64]int{}
	var last uint64
	for i, l := range lines {
		if l.token < last {
			return fmt.Errorf("line %d: process %d leads with token %d after token %d led", i+1, l.pid, l.token, last)
		}
		if p, ok := owner[l.token]; ok && p != l.pid {
			return fmt.Errorf("line %d: processes %d and %d lead with the same token %d", i+1, p, l.pid, l.token)
		}
		owner[l.token], last = l.pid, l.token
	}
	return nil
}

// checkSlots: at no line more processes are inside than there are slots, and no token is used
// twice.
func checkSlots(lines []evidenceLine, limit int) error {
	inside := map[int]uint64{}
	used := map[uint64]bool{}
	for i, l := range lines {
		switch l.what {
		case "E":
			if used[l.token] {
				return fmt.Errorf("line %d: token %d was granted twice", i+1, l.token)
			}
			if t, ok := inside[l.pid]; ok {
				return fmt.Errorf("line %d: process %d entered with token %d while inside with %d", i+1, l.pid, l.token, t)
			}
			used[l.token], inside[l.pid] = true, l.token
			if len(inside) > limit {
				return fmt.Errorf("line %d: %d processes are inside, %d may be", i+1, len(inside), limit)
			}
		case "X":
			if inside[l.pid] != l.token {
				return fmt.Errorf("line %d: process %d left with token %d, it was inside with %d", i+1, l.pid, l.token, inside[l.pid])
			}
			delete(inside, l.pid)
		case "K":
			delete(inside, l.pid)
		}
	}
	return nil
}

// TestEvidenceChecks: the judges see what they are there to see.
func TestEvidenceChecks(t *testing.T) {
	for name, bad := range map[string]error{
		"a token that goes back": checkElection([]evidenceLine{{"L", 1, 10}, {"L", 2, 11}, {"L", 1, 10}}),
		"two with one token":     checkElection([]evidenceLine{{"L", 1, 10}, {"L", 1, 11}}),
		"one too many":           checkSlots([]evidenceLine{{"E", 1, 10}, {"E", 2, 11}}, 1),
		"a token granted twice":  checkSlots([]evidenceLine{{"E", 1, 10}, {"X", 1, 10}, {"E", 1, 11}}, 3),
	} {
		if bad == nil {
			t.Errorf("%s was not seen", name)
		}
	}
	if err := checkSlots([]evidenceLine{{"E", 1, 10}, {"K", 0, 10}, {"E", 2, 11}, {"X", 2, 11}}, 1); err != nil {
		t.Error(err)
	}
}
