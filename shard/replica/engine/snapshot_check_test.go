package engine

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"testing"

	pb "github.com/lni/dragonboat/v4/raftpb"
)

// FuzzSnapshotFile: whatever is in a snapshot's file, it is refused or whole by its checksums, and
// nothing panics.
func FuzzSnapshotFile(f *testing.F) {
	whole := snapshotFile([]byte("a snapshot"))
	f.Add(whole)
	f.Add(whole[:headerSize])
	f.Add(append(bytes.Repeat([]byte{0xff}, 8), whole[8:]...))
	f.Add(append(bytes.Clone(whole), 0))
	if ok, err := checkSnapshotFile(bytes.NewReader(whole), int64(len(whole))); err != nil || !ok {
		f.Fatal(ok, err)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if ok, err := checkSnapshotFile(bytes.NewReader(b), int64(len(b))); err == nil &&
			ok && !bytes.Equal(b[len(b)-8:], magic) {
			t.Error("a file without an end is taken")
		}
	})
}

// snapshotFile is a file as the engine writes it.
func snapshotFile(payload []byte) []byte {
	h := pb.SnapshotHeader{Version: 2, ChecksumType: pb.CRC32IEEE}
	document := pb.MustMarshal(&h)
	b := make([]byte, headerSize)
	binary.LittleEndian.PutUint64(b, uint64(len(document)))
	copy(b[8:], document)
	b = append(b, payload...)
	b = binary.BigEndian.AppendUint32(b, crc32.ChecksumIEEE(payload))
	b = binary.LittleEndian.AppendUint64(b, uint64(len(payload)+4))
	return append(b, magic...)
}
