package meta

import (
	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/protocol/varint"
)

// FormatVersion is the version of commands, results and snapshots that this binary reads and writes
// at most. Apply reads exactly the fields of an entry's own version. [Formats] says which one is
// written.
//
// Version history
//
//	1  first version
//	2  trusts: TrustPut, TrustRemove, section 5 of a snapshot
const (
	FormatVersion = 2
	firstFormat   = 1
)

// Fields are unsigned varints, byte strings after a varint length, and lists after a varint count.
// No field is optional within a version, but for those of a node's config that its Fields name, and
// the times of a tier. A command that has more than the first version names its own, see later.
// Strings are copied: the state must not alias an entry.

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
