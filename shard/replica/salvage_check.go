package replica

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"

	pb "github.com/lni/dragonboat/v4/raftpb"
)

// What the engine's snapshot files are made of: a header in its first KiB, blocks of 2 MiB each with a checksum behind it, and at the end their length and a magic.
const (
	engineHeader = 1 << 10
	engineBlock  = 2 << 20
	engineTail   = 16
)

var engineMagic = []byte{0x3f, 0x5b, 0xcb, 0xf1, 0xfa, 0xba, 0x81, 0x9f}

var errSnapshotDamaged = errors.New("its file is damaged; give the folder of another instance that had the shard, or restore a backup")

// checkSnapshot reads the file of a snapshot as the engine does, which ends the process when it is damaged.
func (h *Host) checkSnapshot(shard, replica, index uint64) error {
	name := fmt.Sprintf("snapshot-%016X", index)
	files, err := filepath.Glob(filepath.Join(h.cfg.Dir, "*", "*", "snapshot-part-*", fmt.Sprintf("snapshot-%d-%d", shard, replica), name, name+".gbsnap"))
	if err != nil {
		return err
	}
	if len(files) != 1 {
		return fmt.Errorf("there are %d files of it, and there must be one; give the folder of another instance that had the shard, or restore a backup", len(files))
	}
	f, err := os.Open(files[0])
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	return checkSnapshotFile(f, info.Size())
}

func checkSnapshotFile(r io.Reader, size int64) error {
	left := size - engineHeader - engineTail
	if left < 0 {
		return errSnapshotDamaged
	}
	head := make([]byte, engineHeader)
	if _, err := io.ReadFull(r, head); err != nil {
		return err
	}
	n := binary.LittleEndian.Uint64(head)
	if n > engineHeader-8-4 {
		return errSnapshotDamaged
	}
	document, sum := head[8:8+n], head[8+n:8+n+4]
	if !bytes.Equal(sum, make([]byte, 4)) && crc32.ChecksumIEEE(document) != binary.BigEndian.Uint32(sum) {
		return errSnapshotDamaged
	}
	var h pb.SnapshotHeader
	if err := h.Unmarshal(document); err != nil || h.Version != 2 || h.ChecksumType != pb.CRC32IEEE {
		return errSnapshotDamaged
	}
	block := make([]byte, max(1, min(engineBlock+4, left)))
	for in := io.LimitReader(r, left); ; {
		n, err := io.ReadFull(in, block)
		switch {
		case errors.Is(err, io.EOF):
			return checkSnapshotTail(r, left)
		case err != nil && !errors.Is(err, io.ErrUnexpectedEOF):
			return err
		case n <= 4 || crc32.ChecksumIEEE(block[:n-4]) != binary.BigEndian.Uint32(block[n-4:]):
			return errSnapshotDamaged
		}
	}
}

func checkSnapshotTail(r io.Reader, length int64) error {
	tail := make([]byte, engineTail)
	if _, err := io.ReadFull(r, tail); err != nil {
		return err
	}
	if binary.LittleEndian.Uint64(tail) != uint64(length) || !bytes.Equal(tail[8:], engineMagic) {
		return errSnapshotDamaged
	}
	return nil
}
