package shard

import "github.com/signalbox-dev/signalbox/protocol"

// addition is what a format version after the first added to a command: the whole command, or
// fields at the end of its body or of a part of the body.
type addition struct {
	format uint8
	path   []int // how much of the body the format before has, for [protocol.CutFields]; nil: nothing, the command is new
}

// additions lists them for each kind, by rising format. Kinds without a line are of format 1.
var additions = [256][]addition{}

// NeedsFormat returns the lowest format version that has the command and all fields of its body.
func NeedsFormat(kind CommandKind, body []byte) uint8 {
	need := uint8(firstFormat)
	for _, a := range additions[kind] {
		_, found := protocol.CutFields(body, a.path...)
		if found || a.path == nil {
			need = a.format
		}
	}
	return need
}

// limitTo leaves of a command what a format version has, as a replica does whose binary knows no
// later one: it passes over fields. It returns false if the format lacks the command.
func (c *rawCommand) limitTo(format uint8) bool {
	for _, a := range additions[c.kind] {
		switch {
		case a.format <= format:
		case a.path == nil:
			return false
		default:
			c.body, _ = protocol.CutFields(c.body, a.path...)
		}
	}
	return true
}
