package replica

import (
	"sync"

	"github.com/lni/vfs"
)

// MemoryDisk is a disk in memory, for tests: it outlives the host that writes to it, and can lose what was not synced.
type MemoryDisk struct {
	fs   *vfs.MemFS // the engine takes this type and no wrapper of it
	addr string     // of the hosts on this disk that name none: it may not change from one to the next

	mu   sync.Mutex
	note []byte
	kept []byte // the note as it will be after a loss of power
	lost bool
}

// Note is what was kept on the disk beside the log with SetNote, which is durable at once. Both may be called from any goroutine.
func (d *MemoryDisk) Note() []byte {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.note
}

// SetNote replaces the note.
func (d *MemoryDisk) SetNote(b []byte) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.note = append([]byte(nil), b...)
	if !d.lost {
		d.kept = d.note
	}
}

// NewMemoryDisk makes an empty one.
func NewMemoryDisk() *MemoryDisk {
	return &MemoryDisk{fs: vfs.NewStrictMem(), addr: newMemoryAddress()}
}

// PowerLoss stops the disk: nothing written or synced from now on will survive. Close the host, then call [MemoryDisk.PowerBack], and open a new
// host on the disk: it finds exactly what was synced before the loss.
func (d *MemoryDisk) PowerLoss() {
	d.mu.Lock()
	d.lost = true
	d.mu.Unlock()
	d.fs.SetIgnoreSyncs(true)
}

// PowerBack drops what was not synced before [MemoryDisk.PowerLoss] and lets the disk work again. No host may be open on it.
func (d *MemoryDisk) PowerBack() {
	d.fs.ResetToSyncedState()
	d.fs.SetIgnoreSyncs(false)
	d.mu.Lock()
	d.note, d.lost = d.kept, false
	d.mu.Unlock()
}
