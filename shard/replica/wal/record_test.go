package wal

import (
	"bytes"
	"testing"

	pb "github.com/lni/dragonboat/v4/raftpb"
)

func FuzzRecords(f *testing.F) {
	var b []byte
	k := key{1, 2}
	b = appendState(b, k, pb.State{Term: 1, Vote: 2, Commit: 3})
	b = appendEntries(b, k, entriesOf(4, 2, 1, 9))
	b = appendDocument(b, snapshotRecord, k, 4, 1, pb.MustMarshal(&pb.Snapshot{Index: 4, Term: 1}))
	b = appendCut(b, k, 4)
	f.Add(b)
	f.Add(appendRemoved(b, k))
	f.Fuzz(func(t *testing.T, b []byte) {
		l := &Log{index: index{replicas: make(map[key]*replica)}}
		_ = records(b, at(1, headerSize), l.apply)
		frame := bytes.Repeat([]byte{1}, int(frameSize(len(b)))) // memory was used before
		copy(frame[frameHead:], b)
		sum := seal(frame, len(b), at(3, 8192), at(3, 4096), 7, 1)
		got, ok := openFrame(append(make([]byte, 8192), frame...), 3, 8192)
		if !ok || got.sum != sum || !bytes.Equal(got.payload, b) || got.prev != 7 ||
			got.first != 1 || got.synced != at(3, 4096) {
			t.Fatalf("%+v", got)
		}
		_, _ = parseHeader(b)
		_, _ = openFrame(b, 1, 0)
	})
}
