package governor

import (
	"fmt"
	"strings"

	"github.com/signalbox-dev/signalbox/shard/meta"
)

// minor is a version without its patch.
func minor(v meta.Version) meta.Version {
	v.Patch = 0
	return v
}

// minorText is like 1.2.
func minorText(v meta.Version) string { return fmt.Sprintf("%d.%d", v.Major, v.Minor) }

// upgrade is the progress of the instances through an upgrade.
type upgrade struct {
	lowest, highest meta.Version // of all instances
	behind          []string     // those that do not run the highest
	count           int
}

func upgradeOf(s *meta.State) (u upgrade) {
	for _, i := range s.Instances() {
		if i.Expelled() {
			continue
		}
		v := minor(i.Version)
		if u.count == 0 || v.Compare(u.lowest) < 0 {
			u.lowest = v
		}
		if v.Compare(u.highest) > 0 {
			u.highest = v
		}
		u.count++
	}
	for _, i := range s.Instances() {
		if !i.Expelled() && minor(i.Version).Compare(u.highest) < 0 {
			u.behind = append(u.behind, i.Name)
		}
	}
	return u
}

// upgradeText returns the next step of an upgrade that is under way or held; empty without one.
func upgradeText(s *meta.State) string {
	u, now := upgradeOf(s), minor(s.ClusterVersion())
	under := u.count > 0 && u.highest.Compare(now) > 0
	switch {
	case under && len(u.behind) > 0:
		text := fmt.Sprintf("version %s runs on %d of %d instances; restart the others with it, one after another: %s",
			minorText(u.highest), u.count-len(u.behind), u.count, strings.Join(u.behind, ", "))
		if s.UpgradeHeld() {
			text += "; the upgrade is held"
		}
		return text
	case under && s.UpgradeHeld():
		return heldText(now, u.highest)
	case under:
		return fmt.Sprintf("all instances run version %s; the cluster's version follows in a moment",
			minorText(u.highest))
	case s.UpgradeHeld():
		return fmt.Sprintf("upgrades are held: the cluster's version stays %s until signalbox cluster upgrade --finish",
			minorText(now))
	}
	return ""
}

func heldText(now, next meta.Version) string {
	return fmt.Sprintf("all instances run version %s, and the hold keeps the cluster's version at %s; "+
		"end it with signalbox cluster upgrade --finish, after which no instance can go back", minorText(next),
		minorText(now))
}

// planVersion raises the cluster version when all instances run a newer one, unless it is held.
func planVersion(p *planner) {
	u, now := upgradeOf(p.State), minor(p.State.ClusterVersion())
	if u.count == 0 || u.lowest.Compare(now) <= 0 {
		return
	}
	step := Step{Kind: RaiseVersion, Version: u.lowest}
	if p.State.UpgradeHeld() {
		p.addWait(Outside, step.String(), "%s", heldText(now, u.lowest))
		return
	}
	p.add(step)
}
