package governor

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/signalbox-dev/signalbox/shard/meta"
)

// Unreached is a report that an instance cannot be reached at its raft address, with the reason.
type Unreached struct {
	Why string // the error of the last attempt
	// From is the host from which the instance is connected meanwhile: its process runs. Empty if
	// it is not.
	From string
}

// describeUnreached returns a clause about an instance that is not reached at its raft address;
// empty if it is. subject is the clause's name for it.
func (v *View) describeUnreached(i *meta.Instance, subject string) string {
	u, ok := v.Unreached[i.ID]
	switch {
	case !ok || i.Expelled():
		return ""
	case u.From != "":
		return fmt.Sprintf("%s connects from %s, but is not reached at %s, the raft address that it advertises (%s)",
			subject, u.From, i.RaftAddress, u.Why)
	}
	return fmt.Sprintf("%s is not reached at %s, its raft address (%s)", subject, i.RaftAddress, u.Why)
}

// What to do about the address of an instance that runs.
const (
	openTheWay       = "open the way to that address"
	advertiseInstead = "or expel it and start it on a new folder with another --raft-advertise"
)

// Applicant is a process that asks to join, and that is not admitted because this instance does not
// reach it at the raft address that it advertises.
type Applicant struct {
	Name    string // empty: the cluster would give one
	Address string
	Why     string
	At      time.Duration // of its last attempt
}

const (
	// applicantMemory is how long an applicant is shown after its last attempt. Attempts are some
	// seconds apart.
	applicantMemory = 30 * time.Second
	maxApplicants   = 64
)

// applicantTable is the applicants of the last moments.
type applicantTable struct {
	mu  sync.Mutex
	all map[string]Applicant // by address
}

// note records an attempt of an applicant. If a.Why is empty, the applicant was reached.
func (t *applicantTable) note(a Applicant) {
	t.mu.Lock()
	defer t.mu.Unlock()
	maps.DeleteFunc(t.all, func(address string, old Applicant) bool {
		return address == a.Address || a.At-old.At > applicantMemory || len(t.all) > maxApplicants
	})
	if a.Why == "" {
		return
	}
	if t.all == nil {
		t.all = make(map[string]Applicant)
	}
	t.all[a.Address] = a
}

// current are those that asked a moment ago, by address.
func (t *applicantTable) current(now time.Duration) (list []Applicant) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, a := range t.all {
		if now-a.At <= applicantMemory {
			list = append(list, a)
		}
	}
	slices.SortFunc(list, func(a, b Applicant) int { return strings.Compare(a.Address, b.Address) })
	return list
}

func addApplicants(p *planner, add func(kind WaitKind, what, format string, args ...any)) {
	for _, a := range p.Applicants {
		add(Outside, cmp.Or(a.Name, "the instance at "+a.Address)+" to join",
			"it is not reached at %s, the raft address that it advertises (%s); %s, "+
				"or start it on a new folder with another --raft-advertise", a.Address, a.Why, openTheWay)
	}
}
