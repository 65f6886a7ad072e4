package client

import (
	"errors"
	"slices"

	"github.com/signalbox-dev/signalbox/client/internal/millis"
	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/protocol/varint"
)

// A configuration is a semaphore of limit 1 whose name begins with ConfigPrefix. Its data holds the
// value and the values before it, so that one compare-and-set replaces all:
//
//	byte   2, the form
//	then the values, newest first, until the end of the data:
//	uvarint version, uvarint ms since 1970, uvarint length, author, uvarint length,
//	reason, uvarint length, bytes
//
// A version is the semaphore's at which the value was set. That of the newest value is not written:
// it is the version that the semaphore has with this data.
const configFormat = 2

// ConfigPrefix begins the names of the semaphores that hold configurations. Programs must not
// acquire them.
const ConfigPrefix = "$config/"

const (
	// MaxConfigLen is the longest value of a configuration: 1 MiB less the room for author and reason.
	MaxConfigLen = protocol.MaxDataLen - 640

	maxAuthorLen = 256 // as an identity's; of a reason too

	// Bounds of the former values that are kept, in number and in bytes of all: every watcher gets
	// them with every change.
	maxConfigHistory      = 10
	maxConfigHistoryBytes = 64 << 10
)

var errNotConfig = errors.New(
	"its data is no configuration; was it changed by something else than a configuration's Set?")

// appendConfig encodes values, newest first, as far as there is room for the older ones.
func appendConfig(values []Value) []byte {
	b := append(make([]byte, 0, len(values[0].Data)+len(values[0].Author)+64), configFormat)
	first := 0
	for i := range values {
		v := &values[i]
		version := v.Version
		if i == 0 {
			version = 0
		}
		entry := varint.Append(nil, version, uint64(max(0, v.Time.UnixMilli())))
		entry = varint.Append(varint.AppendBytes(varint.AppendBytes(entry, v.Author), v.Reason), uint64(len(v.Data)))
		if i > 0 && (i > maxConfigHistory || len(b)-first+len(entry)+len(v.Data) > maxConfigHistoryBytes ||
			len(b)+len(entry)+len(v.Data) > protocol.MaxDataLen) {
			break
		}
		b = append(append(b, entry...), v.Data...)
		if i == 0 {
			first = len(b)
		}
	}
	return b
}

// readConfig decodes values, newest first; at least one. version is the semaphore's.
func readConfig(b []byte, version uint64) ([]Value, error) {
	if len(b) == 0 || b[0] != configFormat {
		return nil, errNotConfig
	}
	var values []Value
	for r := (varint.Reader{Rest: b[1:]}); len(r.Rest) > 0 || len(values) == 0; {
		former, at := r.Uint(), r.Uint()
		author, reason, data := r.Bytes(maxAuthorLen), r.Bytes(maxAuthorLen), r.Bytes(protocol.MaxDataLen)
		if r.Failed {
			return nil, errNotConfig
		}
		if len(values) > 0 {
			version = former
		}
		values = append(values, Value{Exists: true, Version: version, Time: millis.Time(at), Author: string(author),
			Reason: string(reason), Data: slices.Clone(data)})
	}
	return values, nil
}
