package engine

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"

	pb "github.com/lni/dragonboat/v4/raftpb"

	"github.com/signalbox-dev/signalbox/shard/replica/logstore"
)

// The engine's snapshot files have a header in the first KiB, blocks of 2 MiB with a checksum after
// each, and at the end their length and a magic number.
const (
	headerSize = 1 << 10
	blockSize  = 2 << 20
	tailSize   = 16
)

var magic = []byte{0x3f, 0x5b, 0xcb, 0xf1, 0xfa, 0xba, 0x81, 0x9f}

// CheckSnapshot reads the file of a replica's newest snapshot as the engine does, which ends the
// process if it is damaged or missing. name is the shard's, for errors.
func CheckSnapshot(store *logstore.Store, shard, replica uint64, name string) error {
	snapshot, err := store.GetSnapshot(shard, replica)
	if err != nil {
		return fmt.Errorf("read the log of %s: %w", name, err)
	}
	if snapshot.Index == 0 {
		return nil
	}
	f, err := store.Disk().Open(snapshot.Filepath)
	if errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("%w: the snapshot of %s, %q, is missing", logstore.ErrDamaged,
			name, snapshot.Filepath)
	}
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if ok, err := checkSnapshotFile(f, info.Size()); err != nil || ok {
		return err
	}
	return fmt.Errorf("%w: the snapshot of %s, %q, is not what was written",
		logstore.ErrDamaged, name, snapshot.Filepath)
}

// checkSnapshotFile reports whether a snapshot's file is whole.
func checkSnapshotFile(r io.Reader, size int64) (ok bool, err error) {
	left := size - headerSize - tailSize
	if left < 0 {
		return false, nil
	}
	head := make([]byte, headerSize)
	if _, err := io.ReadFull(r, head); err != nil {
		return false, err
	}
	n := binary.LittleEndian.Uint64(head)
	if n > headerSize-8-4 {
		return false, nil
	}
	document, sum := head[8:8+n], head[8+n:8+n+4]
	if !bytes.Equal(sum, make([]byte, 4)) && crc32.ChecksumIEEE(document) != binary.BigEndian.Uint32(sum) {
		return false, nil
	}
	var h pb.SnapshotHeader
	// The engine panics at an unknown compression; only uncompressed snapshots are expected here.
	if err := h.Unmarshal(document); err != nil || h.Version != 2 || h.ChecksumType != pb.CRC32IEEE ||
		h.CompressionType != pb.NoCompression {
		return false, nil
	}
	block := make([]byte, max(1, min(blockSize+4, left)))
	for in := io.LimitReader(r, left); ; {
		n, err := io.ReadFull(in, block)
		switch {
		case errors.Is(err, io.EOF):
			return checkSnapshotTail(r, left)
		case err != nil && !errors.Is(err, io.ErrUnexpectedEOF):
			return false, err
		case n <= 4 || crc32.ChecksumIEEE(block[:n-4]) != binary.BigEndian.Uint32(block[n-4:]):
			return false, nil
		}
	}
}

func checkSnapshotTail(r io.Reader, length int64) (ok bool, err error) {
	tail := make([]byte, tailSize)
	if _, err := io.ReadFull(r, tail); err != nil {
		return false, err
	}
	return binary.LittleEndian.Uint64(tail) == uint64(length) && bytes.Equal(tail[8:], magic), nil
}
