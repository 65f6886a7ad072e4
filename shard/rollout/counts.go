package rollout

import (
	"cmp"
	"slices"
)

// contribution is an instance's part of the counts of its location.
type contribution struct {
	leader, counted, unreached, explicit bool
	suspect                              int8 // 0 no, 1 as a leader, 2 as a follower
	suspectAt                            uint64
}

func contributionOf(p *instance, pl *plan) (x contribution) {
	l := p.loc
	x.leader = p.leads()
	if l.target == 0 {
		return x
	}
	x.counted = x.leader && (!l.shareOnly || p.inShare)
	x.unreached = x.counted && !p.reached(pl)
	if p.report.Target != l.target || p.reportGen != l.generation {
		return x
	}
	x.explicit = isExplicit(&pl.config, p.report.Code)
	if p.report.Code == CodeSourceError && p.report.Attempts > pl.config.ImplicitAttempts &&
		p.sent == l.target && p.sentGen == l.generation {
		x.suspect = 2
		if x.leader {
			x.suspect = 1
		}
		x.suspectAt = p.sentAt + pl.config.ImplicitAfter + 1 // strictly later than
	}
	return x
}

// add adds a contribution to the counts of a location, or subtracts it. It returns false if the
// suspects' time must be found again.
func (l *location) add(x contribution, by int) bool {
	count := func(n *int, yes bool) {
		if yes {
			*n += by
		}
	}
	count(&l.leaders, x.leader)
	count(&l.counted, x.counted)
	count(&l.unreached, x.unreached)
	count(&l.explicit, x.explicit)
	if x.suspect == 0 {
		return true
	}
	s := &l.suspects[x.suspect-1]
	s.n += by
	if by > 0 {
		if s.n == 1 || x.suspectAt < s.at {
			s.at = x.suspectAt
		}
		return true
	}
	return s.n > 0 && x.suspectAt > s.at
}

// updateCounts brings the counts up to date after p changed.
func (i *instance) updateCounts(pl *plan) {
	x := contributionOf(i, pl)
	if x == i.contribution {
		return
	}
	ok := i.loc.add(i.contribution, -1)
	i.contribution = x
	if i.loc.add(x, 1); !ok {
		i.loc.findSuspects()
	}
}

func (l *location) findSuspects() {
	l.suspects = [2]suspects{}
	for _, p := range l.members {
		if p.contribution.suspect > 0 {
			s := &l.suspects[p.contribution.suspect-1]
			s.n++
			if s.n == 1 || p.contribution.suspectAt < s.at {
				s.at = p.contribution.suspectAt
			}
		}
	}
}

// recount counts all members of l again.
func (l *location) recount(pl *plan) {
	l.leaders, l.counted, l.unreached, l.explicit = 0, 0, 0, 0
	for _, p := range l.members {
		p.contribution = contributionOf(p, pl)
		l.add(p.contribution, 1)
	}
	l.findSuspects()
}

// pickShare chooses the instances that get a target first: percent of the leaders, rounded up, in
// order of their ids.
func (l *location) pickShare(percent uint8) {
	var leaders []*instance
	for _, p := range l.members {
		p.inShare = false
		if p.leads() {
			leaders = append(leaders, p)
		}
	}
	slices.SortFunc(leaders, byID)
	// the config may have lost the share meanwhile: all
	n := (len(leaders)*int(cmp.Or(uint64(percent), 100)) + 99) / 100
	for _, p := range leaders[:min(n, len(leaders))] {
		p.inShare = true
	}
}
