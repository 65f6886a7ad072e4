package replica

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

// TestSnapshotsAreWrittenWhileSaved: what the engine's snapshots hold is handed to the disk piece
// by piece, and nothing of it is lost; its other files are the file system's own.
func TestSnapshotsAreWrittenWhileSaved(t *testing.T) {
	fs := engineConfig(&HostConfig{}, nil).Expert.FS
	path := filepath.Join(t.TempDir(), "snapshot-0000000000000010.gbsnap")
	f, err := fs.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	file, ok := f.(*snapshotHandle)
	if !ok {
		t.Fatalf("a snapshot is a %T", f)
	}
	var all []byte
	handed := 0
	for i := range 200 {
		piece := bytes.Repeat([]byte{byte(i)}, 10_000)
		before := file.kept
		if n, err := f.Write(piece); n != len(piece) || err != nil {
			t.Fatal(n, err)
		}
		all = append(all, piece...)
		if file.kept < before {
			handed = len(all)
		}
		if kept := len(all) - handed; kept != file.kept || kept >= writeAhead {
			t.Fatalf("after %d bytes the disk was not told of %d, and %d are counted", len(all), kept, file.kept)
		}
	}
	// Its header comes last.
	if _, err := f.Seek(0, 0); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Write([]byte("header")); err != nil {
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
