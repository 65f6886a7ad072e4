package rollout

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc64"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// savedVersion is what a follower knows from before: the version it served last, and the id that
// the folder belongs to. It is one file, replaced as a whole.
//
//	magic (8 bytes) | CRC-64 of the rest | version | has payload (1) | length of the id (2) |
//	id | payload
//
// Numbers are big-endian, of 8 bytes where nothing else is said.
type savedVersion struct {
	id         string // track, location and id
	version    uint64
	hasPayload bool
	payload    []byte
}

const (
	savedMagic   = "sbroll1\n"
	savedFile    = "version"
	maxSavedFile = 1 << 20 // bytes
)

var savedCRC = crc64.MakeTable(crc64.ECMA)

// loadSavedVersion reads what a folder has; nothing is there: nil.
func loadSavedVersion(dir string) (*savedVersion, error) {
	path := filepath.Join(dir, savedFile)
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxSavedFile)) // of a longer one the checksum is wrong
	if err != nil {
		return nil, err
	}
	const head = len(savedMagic) + 8
	if len(b) < head+8+1+2 || string(b[:len(savedMagic)]) != savedMagic ||
		binary.BigEndian.Uint64(b[len(savedMagic):]) != crc64.Checksum(b[head:], savedCRC) {
		return nil, fmt.Errorf("%s is damaged; remove it, and the instance begins without a version", path)
	}
	b = b[head:]
	k := &savedVersion{version: binary.BigEndian.Uint64(b), hasPayload: b[8] == 1}
	n := int(binary.BigEndian.Uint16(b[9:]))
	if b = b[11:]; n > len(b) {
		return nil, fmt.Errorf("%s is damaged; remove it, and the instance begins without a version", path)
	}
	k.id, k.payload = string(b[:n]), b[n:]
	return k, nil
}

// save replaces what the folder has. It is on disk when save returns.
func (k *savedVersion) save(dir string) error {
	b := append([]byte(savedMagic), make([]byte, 8)...)
	b = binary.BigEndian.AppendUint64(b, k.version)
	if k.hasPayload {
		b = append(b, 1)
	} else {
		b = append(b, 0)
	}
	b = append(binary.BigEndian.AppendUint16(b, uint16(len(k.id))), k.id...)
	b = append(b, k.payload...)
	binary.BigEndian.PutUint64(b[len(savedMagic):], crc64.Checksum(b[len(savedMagic)+8:], savedCRC))
	// A rename would replace a device or a link as well.
	if fi, err := os.Lstat(filepath.Join(dir, savedFile)); err == nil && !fi.Mode().IsRegular() {
		return fmt.Errorf("%s is not a regular file; move it away, or give the instance another folder",
			filepath.Join(dir, savedFile))
	}
	f, err := os.CreateTemp(dir, savedFile+".*")
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	if err == nil {
		err = f.Sync()
	}
	if e := f.Close(); err == nil {
		err = e
	}
	if err == nil {
		err = os.Rename(f.Name(), filepath.Join(dir, savedFile))
	}
	if err != nil {
		_ = os.Remove(f.Name())
		return err
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}
