package server

import (
	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server/backup"
	"github.com/signalbox-dev/signalbox/server/cluster"
	"github.com/signalbox-dev/signalbox/server/peer"
	"github.com/signalbox-dev/signalbox/shard"
	"github.com/signalbox-dev/signalbox/shard/meta"
	"github.com/signalbox-dev/signalbox/shard/replica/logstore"
	"github.com/signalbox-dev/signalbox/shard/replica/wal"
)

// Format is the number of one format of files or messages.
type Format struct {
	Name   string
	Number int
}

// Formats returns the number of each format that this binary writes at most.
func Formats() []Format {
	return []Format{
		{"protocol", protocol.Version},
		{"shard", shard.FormatVersion},
		{"meta", meta.FormatVersion},
		{"peer", peer.HandshakeVersion},
		{"log", wal.FormatVersion},
		{"watermark", logstore.FileVersion},
		{"identity", cluster.IdentityFormat},
		{"backup", backup.Format},
	}
}
