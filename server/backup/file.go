package backup

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
)

// Format is the version of the file's format.
const Format = 1

// The file is the magic, the format version in a byte, and blocks. A block is the big-endian length
// of the payload in 4 bytes, its CRC-32C in 4 bytes, and the payload: the kind in a byte, and the
// content.
const (
	magic    = "sbackup"
	maxBlock = 4 << 20

	blockHead    = 'H' // Head as JSON; the first
	blockSection = 'S' // Section as JSON; the bytes of the shard's snapshot follow
	blockBytes   = 'B'
	blockEnd     = 'E' // end as JSON; the last
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Head describes a backup. The names of fields are part of the format.
type Head struct {
	Cluster string `json:"cluster"` // id
	Name    string `json:"name,omitempty"`
	Version string `json:"version"` // of the cluster
	MadeMS  int64  `json:"made_ms"` // wall clock, ms since 1970
	Shards  int    `json:"shards"`  // data shards
	// Recovered is the origin of a backup that was made from folders of instances.
	Recovered *Recovered `json:"recovered,omitempty"`
}

// Recovered is where a backup comes from that was made of the folders of instances that were left.
type Recovered struct {
	Reason  string   `json:"reason"`
	User    string   `json:"user,omitempty"` // of the operating system
	Host    string   `json:"host,omitempty"`
	Folders []string `json:"folders"`
	// Losses says for each log that was read and may lack entries why that is so.
	Losses []string `json:"losses,omitempty"`
}

// Section is a shard in the file.
type Section struct {
	Shard uint64 `json:"shard"` // 0 is the meta shard
	Size  uint64 `json:"size"`  // of its snapshot, in bytes
	Index uint64 `json:"index"` // of the last log entry that it has
}

type end struct {
	Sections int    `json:"sections"`
	Bytes    uint64 `json:"bytes"` // of all snapshots
}

// Writer writes a backup. It must not be used after an error.
type Writer struct {
	w    io.Writer
	end  end
	left uint64 // bytes of the section that are to come
	err  error
}

// NewWriter begins a file.
func NewWriter(w io.Writer, h Head) (*Writer, error) {
	b := &Writer{w: w}
	b.write(append([]byte(magic), Format))
	b.document(blockHead, h)
	return b, b.err
}

// Section begins a shard.
func (w *Writer) Section(s Section) error {
	if w.left > 0 && w.err == nil {
		w.err = fmt.Errorf("backup: %d bytes of the last shard are missing", w.left)
	}
	w.left = s.Size
	w.end.Sections++
	w.document(blockSection, s)
	return w.err
}

// Write adds bytes of the shard's snapshot.
func (w *Writer) Write(p []byte) (int, error) {
	if uint64(len(p)) > w.left && w.err == nil {
		w.err = errors.New("backup: a shard has more bytes than it was to have")
	}
	w.left -= min(w.left, uint64(len(p)))
	w.end.Bytes += uint64(len(p))
	n := len(p)
	for len(p) > 0 && w.err == nil {
		part := p[:min(len(p), maxBlock-1)]
		w.block(blockBytes, part)
		p = p[len(part):]
	}
	if w.err != nil {
		return 0, w.err
	}
	return n, nil
}

// Close ends the file. It does not close the underlying writer.
func (w *Writer) Close() error {
	if w.left > 0 && w.err == nil {
		w.err = fmt.Errorf("backup: %d bytes of the last shard are missing", w.left)
	}
	w.document(blockEnd, w.end)
	return w.err
}

func (w *Writer) document(kind byte, v any) {
	text, err := json.Marshal(v)
	if err != nil && w.err == nil {
		w.err = err
	}
	w.block(kind, text)
}

func (w *Writer) block(kind byte, content []byte) {
	payload := append([]byte{kind}, content...)
	w.write(binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(nil, uint32(len(payload))),
		crc32.Checksum(payload, castagnoli)))
	w.write(payload)
}

func (w *Writer) write(p []byte) {
	if w.err == nil {
		_, w.err = w.w.Write(p)
	}
}

type reader struct{ r io.Reader }

func (r *reader) magic() error {
	b := make([]byte, len(magic)+1)
	if _, err := io.ReadFull(r.r, b); err != nil || string(b[:len(magic)]) != magic {
		return errors.New("this is not a backup")
	}
	if b[len(magic)] != Format {
		return fmt.Errorf("the backup has format version %d, and this binary knows %d; take the binary that made it, or a newer one",
			b[len(magic)], Format)
	}
	return nil
}

// block reads the next block. Memory grows with the bytes that are there.
func (r *reader) block() (kind byte, content []byte, err error) {
	var head [8]byte
	if _, err := io.ReadFull(r.r, head[:]); err != nil {
		return 0, nil, fmt.Errorf("the backup is cut short: %w", err)
	}
	n := binary.BigEndian.Uint32(head[:])
	if n == 0 || n > maxBlock {
		return 0, nil, fmt.Errorf("the backup is damaged: a block of %d bytes", n)
	}
	payload := make([]byte, n)
	if _, err := io.ReadFull(r.r, payload); err != nil {
		return 0, nil, fmt.Errorf("the backup is cut short: %w", err)
	}
	if crc32.Checksum(payload, castagnoli) != binary.BigEndian.Uint32(head[4:]) {
		return 0, nil, errors.New("the backup is damaged: a checksum is wrong")
	}
	return payload[0], payload[1:], nil
}

func (r *reader) document(kind byte, v any) error {
	k, b, err := r.block()
	if err != nil {
		return err
	}
	if k != kind {
		return fmt.Errorf("the backup is damaged: a block of kind %q where one of kind %q was to come", k, kind)
	}
	return parse(b, v)
}

func parse(b []byte, v any) error {
	if err := json.Unmarshal(b, v); err != nil {
		return fmt.Errorf("the backup is damaged: %w", err)
	}
	return nil
}
