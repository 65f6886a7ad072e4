package wal

import (
	"flag"
	"testing"

	pb "github.com/lni/dragonboat/v4/raftpb"

	"github.com/signalbox-dev/signalbox/shard/formattest"
)

var _ = flag.Bool("update", false, "rewrite the golden file of testdata")

// TestFormat compares the header of a segment, a frame and each record with
// testdata/format-N.golden.
func TestFormat(t *testing.T) {
	var g formattest.Golden
	h := header{number: 3, id: 5, prevEnd: at(2, 4096), prevSum: 7, first: 1}
	g.Add("header", "", h.encode()[:headerLen])
	k := key{8, 9}
	entries := []pb.Entry{{Term: 1, Index: 2, Cmd: []byte("x")}, {Term: 1, Index: 3, Type: pb.ConfigChangeEntry}}
	all := map[kind][]byte{
		stateRecord:     appendState(nil, k, pb.State{Term: 1, Vote: 2, Commit: 3}),
		entriesRecord:   appendEntries(nil, k, entries),
		movedRecord:     appendEntriesHead(nil, movedRecord, k, 2, 0),
		snapshotRecord:  appendDocument(nil, snapshotRecord, k, 2, 1, []byte("document")),
		installedRecord: appendDocument(nil, installedRecord, k, 2, 1, []byte("document")),
		bootstrapRecord: appendDocument(nil, bootstrapRecord, k, 0, 0, []byte("document")),
		cutRecord:       appendCut(nil, k, 2),
		removedRecord:   appendRemoved(nil, k),
	}
	payload := []byte{}
	for what := stateRecord; what <= removedRecord; what++ {
		g.Add("record", "", all[what])
		payload = append(payload, all[what]...)
	}
	b := append(make([]byte, frameHead), payload...)
	b = append(b, make([]byte, frameSize(len(payload))-int64(len(b)))...)
	seal(b, len(payload), at(3, headerSize), at(2, 8192), h.sum, 1)
	g.Add("frame", "", b)
	seen := kind(0)
	if err := records(payload, 0, func(r *record) error {
		if seen++; r.kind != seen {
			t.Errorf("record %d is read as kind %d", seen, r.kind)
		}
		return nil
	}); err != nil || seen != removedRecord {
		t.Errorf("%d records are read: %v", seen, err)
	}
	g.Check(t, FormatVersion)
}
