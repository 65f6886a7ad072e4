package meta

import "github.com/signalbox-dev/signalbox/protocol/varint"

// UpgradeHold keeps the cluster's version as it is, though all instances may run a newer one, or
// ends that. Until the version rises, instances can go back to the one before.
type UpgradeHold struct {
	Held bool
}

func (*UpgradeHold) kind() Kind { return KindUpgradeHold }

func (c *UpgradeHold) fields(f *varint.Fields) { f.Bool(&c.Held) }

func (c *UpgradeHold) apply(s *State) Result {
	if !s.Bootstrapped() {
		return notBootstrapped()
	}
	if s.upgradeHeld == c.Held {
		return Result{Revision: unchanged}
	}
	s.upgradeHeld = c.Held
	return Result{}
}
