package meta

import (
	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/protocol/varint"
)

// FormatVersion is the version of commands, results and snapshots that this binary writes. Apply
// reads exactly the fields of an entry's own version.
//
// Version history
//
//	1  first version
const FormatVersion = 1

// Fields are unsigned varints, byte strings after a varint length, and lists after a varint count.
// No field is optional within a version, but for those of a node's config that its Fields name, and
// the times of a tier: what an older binary wrote lacks the newer ones. While versions differ no
// node is created or altered, so an older binary reads no newer config. Strings are copied: the
// state must not alias an entry.

func configFields(f *varint.Fields, c *protocol.NodeConfig) {
	f.Uint32(&c.Fields)
	f.Uint(&c.SelfCheckPeriod, &c.GracePeriod)
	varint.Byte(f, &c.ReadConsistency)
	varint.Byte(f, &c.AttachConsistency)
	varint.Byte(f, &c.CountersMode)
	f.Uint(&c.MaxSessions, &c.MaxSemaphores, &c.MaxBytes, &c.MaxWaiters, &c.MaxWatchers, &c.MaxRequests)
	if c.Fields&protocol.FieldSlowWait != 0 {
		f.Uint(&c.SlowWait)
	}
	if c.Fields&protocol.FieldMaxPriority != 0 {
		varint.Byte(f, &c.MaxPriority)
	}
	if c.Fields&protocol.FieldForeign != 0 {
		f.Text(&c.Foreign, protocol.MaxForeignLen)
	}
}
