package chaos

import (
	"encoding/json"
	"fmt"
	"testing"
)

func readRoundRecords(t *testing.T, path, name string) (list []roundRecord) {
	t.Helper()
	eachLine(t, path, func(text string) error {
		x := roundRecord{member: name}
		err := json.Unmarshal([]byte(text), &x)
		list = append(list, x)
		return err
	})
	return list
}

// roundSummary is what the members of a process did.
type roundSummary struct {
	complete   map[uint64]int // members by epoch, of rounds that somebody completed
	cancelled  int            // ends of prepared rounds
	prepared   int
	coordinate map[uint64]uint64 // session by epoch
}

// checkRounds checks what every history must show. mayDie says that a member was killed, or stopped
// for longer than its session lived. Lines of one session are in order.
//
//   - What a member does is of the one round that it has prepared. Epochs rise. Each prepare is
//     matched by one cancel or one complete; a killed member may have a round open.
//   - A round has one coordinator, and one value.
//   - A message is executed with success once, and none is missing where a round is complete.
//   - No living member of a round cancels what another completes.
func checkRounds(list []roundRecord, mayDie func(name string) bool) (roundSummary, error) {
	out := roundSummary{complete: map[uint64]int{}, coordinate: map[uint64]uint64{}}
	type state struct {
		open, last uint64 // epochs
		members    int
		locked     bool
		terminated bool
		player     string
	}
	states := map[uint64]*state{}
	values, completedBy, cancelledBy := map[uint64]string{}, map[uint64]string{}, map[uint64]string{}
	for _, x := range list {
		s := states[x.Session]
		if s == nil {
			s = &state{player: x.member}
			states[x.Session] = s
		}
		bad := func(text string) (roundSummary, error) {
			return out, fmt.Errorf("%s, session %d: %s of epoch %d %s; open is %d, the last was %d", x.member,
				x.Session, x.What, x.Epoch, text, s.open, s.last)
		}
		switch {
		case s.terminated:
			return bad("after its end")
		case x.What == "prepare" && (s.open != 0 || x.Epoch <= s.last):
			return bad("comes too late, or while another is open")
		case x.What != "prepare" && x.What != "terminate" && x.Epoch != s.open:
			return bad("is of a round that it has not open")
		case x.What == "terminate" && s.open != 0:
			return bad("leaves a round open")
		case x.What != "terminate" && x.Token < x.Epoch:
			return bad(fmt.Sprintf("has the token %d", x.Token))
		}
		switch x.What {
		case "prepare":
			s.open, s.last, s.members, s.locked = x.Epoch, x.Epoch, x.Members, false
			out.prepared++
		case "coordinate":
			if by := out.coordinate[x.Epoch]; by != 0 {
				return bad(fmt.Sprintf("was coordinated by %d", by))
			}
			out.coordinate[x.Epoch] = x.Session
		case "process":
			if s.locked {
				return bad("is executed twice")
			}
			s.locked = true
		case "cancel":
			s.open = 0
			out.cancelled++
			if !mayDie(x.member) {
				cancelledBy[x.Epoch] = x.member
			}
		case "complete":
			s.open = 0
			out.complete[x.Epoch] = x.Members
			switch {
			case !s.locked && !x.Resumed:
				return bad("was not locked")
			case x.Members != s.members:
				return bad("has other members than it prepared with")
			case x.Value != "" && values[x.Epoch] != "" && x.Value != values[x.Epoch]:
				return bad(fmt.Sprintf("has the value %q for one and %q for another", x.Value, values[x.Epoch]))
			}
			if x.Value != "" {
				values[x.Epoch] = x.Value
			}
			if !mayDie(x.member) {
				completedBy[x.Epoch] = x.member
			}
		case "terminate":
			s.terminated = true
		default:
			return bad("is not known")
		}
	}
	for epoch, name := range completedBy {
		if other := cancelledBy[epoch]; other != "" {
			return out, fmt.Errorf("round %d was completed by %s and cancelled by %s", epoch, name, other)
		}
	}
	for epoch, value := range values {
		if want := fmt.Sprintf("%d by %d", epoch, out.coordinate[epoch]); value != want {
			return out, fmt.Errorf("round %d has the value %q, its coordinator said %q", epoch, value, want)
		}
	}
	for session, s := range states {
		if !s.terminated && !mayDie(s.player) {
			return out, fmt.Errorf("%s, session %d: it has no end", s.player, session)
		}
	}
	return out, nil
}

// TestRoundChecks: the judge finds what is wrong.
func TestRoundChecks(t *testing.T) {
	type line struct {
		session uint64
		what    string
		epoch   uint64
	}
	build := func(lines ...line) (list []roundRecord) {
		for _, l := range lines {
			x := roundRecord{Session: l.session, What: l.what, Epoch: l.epoch, Token: l.epoch, Members: 2, member: fmt.Sprint(l.session)}
			if l.what == "complete" {
				x.Value = fmt.Sprintf("%d by 1", l.epoch)
			}
			list = append(list, x)
		}
		return list
	}
	good := []line{
		{1, "prepare", 4}, {2, "prepare", 4}, {1, "coordinate", 4}, {1, "cancel", 4}, {2, "cancel", 4},
		{1, "prepare", 5}, {2, "prepare", 5}, {1, "coordinate", 5}, {1, "process", 5}, {2, "process", 5}, {2, "complete", 5}, {1, "complete", 5},
		{1, "terminate", 0}, {2, "terminate", 0},
	}
	nobody := func(string) bool { return false }
	r, err := checkRounds(build(good...), nobody)
	if err != nil || len(r.complete) != 1 || r.prepared != 4 || r.cancelled != 2 {
		t.Fatalf("a good history: %+v, %v", r, err)
	}
	for what, edit := range map[string]func(l []line) []line{
		"no end of a round":       func(l []line) []line { return append(l[:4:4], l[5:]...) },
		"completed and cancelled": func(l []line) []line { l[11].what = "cancel"; return l },
		"two coordinators":        func(l []line) []line { l[9] = line{2, "coordinate", 5}; return l },
		"executed twice":          func(l []line) []line { l[9] = line{1, "process", 5}; return l },
		"not executed":            func(l []line) []line { return append(l[:9:9], l[10:]...) },
		"an old round":            func(l []line) []line { l[9].epoch = 4; return l },
		"epochs go back":          func(l []line) []line { l[5].epoch = 3; return l },
		"no end":                  func(l []line) []line { return l[:13] },
	} {
		if _, err := checkRounds(build(edit(append([]line(nil), good...))...), nobody); err == nil {
			t.Errorf("%s: not found", what)
		}
	}
}
