package shard

import "github.com/signalbox-dev/signalbox/protocol"

// addition is a later format version's addition to a command: the whole command, fields
// at the end of its body or of a part of the body, or values of an enumeration or a set of flags.
type addition struct {
	format uint8
	// how much of the body the format before has, for [protocol.CutFields]; nil: nothing, the command
	// is new
	path []int

	// value reports whether a body has a value that the format before refuses; nil: the addition is
	// not one of values.
	value func(body []byte) bool
}

// additions lists them for each kind, by rising format. Kinds without a line are of format 1.
var additions = [256][]addition{}

// has reports whether a command uses the addition.
func (a *addition) has(body []byte) bool {
	switch {
	case a.value != nil:
		return a.value(body)
	case a.path == nil:
		return true
	}
	_, found := protocol.CutFields(body, a.path...)
	return found
}

// NeedsFormat returns the lowest format version that has the command, all fields of its body and
// their values.
func NeedsFormat(kind CommandKind, body []byte) uint8 {
	need := uint8(firstFormat)
	for _, a := range additions[kind] {
		if a.has(body) {
			need = a.format
		}
	}
	return need
}

// limitTo leaves of a command what a format version has, as a replica does whose binary knows no
// later one: it passes over fields, and refuses values. It returns false if the format lacks the
// command or a value.
func (c *rawCommand) limitTo(format uint8) bool {
	for _, a := range additions[c.kind] {
		switch {
		case a.format <= format:
		case a.value != nil || a.path == nil:
			if a.has(c.body) {
				return false
			}
		default:
			c.body, _ = protocol.CutFields(c.body, a.path...)
		}
	}
	return true
}
