package replica

import (
	"sync"

	"github.com/lni/vfs"
)

// MemoryDisk is a disk in memory, for tests: it outlives the host that writes to it, and can lose what was not synced.
type MemoryDisk struct {
	fs   *vfs.MemFS // the engine takes this type and no wrapper of it
	addr string     // of the hosts on this disk that name none: it may not change from one to the next

	mu             sync.Mutex
	metadata       []byte
	syncedMetadata []byte // the note as it will be after a loss of power
	powerLost      bool
}

// Metadata is what was kept on the disk beside the log with SetMetadata, which is durable at once. Both may be called from any goroutine.
func (d *MemoryDisk) Metadata() []byte {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.metadata
}

// SetMetadata replaces the note.
func (d *MemoryDisk) SetMetadata(b []byte) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.metadata = append([]byte(nil), b...)
	if !d.powerLost {
		d.syncedMetadata = d.metadata
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
	d.powerLost = true
	d.mu.Unlock()
	d.fs.SetIgnoreSyncs(true)
}

// PowerBack drops what was not synced before [MemoryDisk.PowerLoss] and lets the disk work again. No host may be open on it.
func (d *MemoryDisk) PowerBack() {
	d.fs.ResetToSyncedState()
	d.fs.SetIgnoreSyncs(false)
	d.mu.Lock()
	d.metadata, d.powerLost = d.syncedMetadata, false
	d.mu.Unlock()
}
