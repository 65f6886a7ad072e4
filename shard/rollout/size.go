package rollout

import "github.com/signalbox-dev/signalbox/protocol"

// What counts in Bytes beside texts: about the memory it takes.
const (
	instanceOverhead = 512
	versionOverhead  = 64
	locationOverhead = 256
	gateOverhead     = 64
)

// ConfigBytes is what a config counts.
func ConfigBytes(c *protocol.TrackConfig) uint64 {
	sum := uint64(0)
	for i := range c.Locations {
		l := &c.Locations[i]
		sum += locationOverhead + uint64(len(l.Name))
		for j := range l.Gates {
			sum += gateOverhead + uint64(len(l.Gates[j].Name)+len(l.Gates[j].Spec))
		}
	}
	for _, code := range c.ExplicitCodes {
		sum += uint64(len(code))
	}
	return sum
}

// InstanceBytes is what an instance counts whose id and meta are so long.
func InstanceBytes(id, meta int) uint64 { return instanceOverhead + uint64(id+meta) }

// VersionBytes is what a published version counts whose payload is so long.
func VersionBytes(payload int) uint64 { return versionOverhead + uint64(payload) }
