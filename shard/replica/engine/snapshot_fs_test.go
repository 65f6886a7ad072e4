package engine

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/lni/vfs"
)

// TestSnapshotsAreWrittenWhileSaved: each block of a snapshot's file is handed to the disk when it
// is written, and nothing of it is lost; other files are the file system's own.
func TestSnapshotsAreWrittenWhileSaved(t *testing.T) {
	path := filepath.Join(t.TempDir(), "snapshot-0000000000000010"+snapshotSuffix)
	begun := 0
	fs := snapshotFS{vfs.Default, func(f *os.File) {
		if f.Name() != path {
			t.Errorf("%s is written", f.Name())
		}
		beginWrite(f)
		begun++
	}}
	f, err := fs.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	var all []byte
	for i := range 20 {
		block := bytes.Repeat([]byte{byte(i)}, 100_000)
		if n, err := f.Write(block); n != len(block) || err != nil || begun != i+1 {
			t.Fatalf("block %d: %d bytes are written, %v, and %d blocks handed on", i, n, err, begun)
		}
		all = append(all, block...)
	}
	if _, err := f.WriteAt([]byte("header"), 0); err != nil { // it comes last
		t.Fatal(err)
	}
	copy(all, "header")
	if err := f.Sync(); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if read, err := os.ReadFile(path); err != nil || !bytes.Equal(read, all) {
		t.Fatalf("read %d bytes, %v; want the %d that were written", len(read), err, len(all))
	}
	other, err := fs.Create(path + ".metadata")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = other.Close() }()
	if _, ok := other.(*os.File); !ok {
		t.Errorf("another file is a %T", other)
	}
}
