package protocol

import "encoding/binary"

// The frames of a Snapshot for many streams differ in the stream's id and in the index alone. So a
// server encodes the rest once, and sends each stream a head of its own in front of it.

// AppendSnapshotRest appends the part of a Snapshot's body after the index.
func AppendSnapshotRest(b []byte, m *Snapshot) []byte {
	rest := *m
	rest.Index = 0
	start := len(b)
	f := encoder(b)
	rest.fields(&f)
	b = f.body()
	return append(b[:start], b[start+2:]...) // behind the array's head and the index, a byte each
}

// AppendSnapshotHead appends the frame of a Snapshot up to its index. What AppendSnapshotRest has
// given follows, size bytes of it.
func AppendSnapshotHead(b []byte, id, shard, index uint64, size int) []byte {
	start := len(b)
	b = beginFrame(b, KindSnapshot, id, shard)
	b = append(b, fixArray|snapshotFields)
	b = appendUint(b, index)
	return lengthOfRest(b, start, size)
}

// AppendResumedHead appends the frame of a Snapshot with Resumed up to its deltas, of which size
// bytes follow.
func AppendResumedHead(b []byte, id, shard, index, epoch uint64, size int) []byte {
	start := len(b)
	m := Snapshot{Index: index, First: true, Last: true, Epoch: epoch, Resumed: true}
	f := encoder(beginFrame(b, KindSnapshot, id, shard))
	m.fields(&f)
	b = f.body()
	b = appendBinHead(b[:len(b)-2], size) // in place of the empty bytes at the end
	return lengthOfRest(b, start, size)
}

// lengthOfRest fills in the length of a frame of which the last bytes are still to come.
func lengthOfRest(b []byte, start, size int) []byte {
	binary.BigEndian.PutUint32(b[start:], uint32(len(b)-start-lengthSize+size))
	return b
}
