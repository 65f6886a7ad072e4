package meta

import "github.com/signalbox-dev/signalbox/protocol"

// Formats are versions of formats: of a data shard's bytes, and of the meta shard's.
type Formats struct {
	Shard uint8
	Meta  uint8
}

// formats is the gate: from which version of the cluster on which formats are written. All
// instances read them by then, because the cluster's version rises when each runs that version. A
// new command, or a field of one, is the next number of its format and a line here.
var formats = []struct {
	from Version
	Formats
}{
	{Version{Minor: 2}, Formats{Shard: 1, Meta: 1}},
	{Version{Minor: 3}, Formats{Shard: 1, Meta: 2}},
}

// FormatsOf returns the highest formats that a version of the cluster allows.
func FormatsOf(v Version) Formats {
	f := formats[0].Formats
	for _, line := range formats {
		if line.from.compareMinor(v) <= 0 {
			f = line.Formats
		}
	}
	return f
}

// NeedsShardFormat returns the error for a request that a data shard's log takes in this format or a
// later one. Every format has a line: tests of package shard and of package server see to it.
func NeedsShardFormat(format uint8) error {
	for _, line := range formats {
		if line.Shard >= format {
			return needsVersion(line.from)
		}
	}
	return protocol.Errorf(protocol.StatusInternal, "no version of the cluster writes format %d of a shard's log", format)
}

func needsVersion(v Version) *protocol.Error {
	return protocol.Errorf(protocol.StatusPreconditionFailed,
		"needs version %d.%d of the cluster; finish the upgrade: signalbox cluster upgrade", v.Major, v.Minor)
}

// later is a command that the first format lacks, or that has fields which it lacks.
type later interface {
	// format returns the lowest format version that has the command with what is in it.
	format() uint8
}

func formatOf(c Command) uint8 {
	if l, ok := c.(later); ok {
		return l.format()
	}
	return firstFormat
}
