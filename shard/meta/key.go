package meta

import (
	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/protocol/varint"
)

// KeySecretLen is the length of a ticket key's secret.
const KeySecretLen = 32

// Key signs the tickets of sessions. ID 0 is no key; ids rise by one.
type Key struct {
	ID     uint64
	Secret [KeySecretLen]byte
}

// RotateKeys makes a new current key. ABORTED unless Current is the current key's id.
type RotateKeys struct {
	Current uint64
	Secret  [KeySecretLen]byte // random, from the proposer
}

func (*RotateKeys) kind() Kind { return KindRotateKeys }

func (c *RotateKeys) fields(f *varint.Fields) {
	f.Uint(&c.Current)
	f.Fixed(c.Secret[:])
}

func (c *RotateKeys) apply(s *State) Result {
	if !s.Bootstrapped() {
		return notBootstrapped()
	}
	if c.Current != s.keys[0].ID {
		return refuse(protocol.StatusAborted, "the current ticket key is %d, not %d; look again and retry",
			s.keys[0].ID, c.Current)
	}
	s.keys = [2]Key{{ID: c.Current + 1, Secret: c.Secret}, s.keys[0]}
	return Result{}
}
