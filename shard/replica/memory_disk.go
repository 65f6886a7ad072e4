package replica

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/lni/vfs"
)

// MemoryDisk is a disk in memory, for tests. It survives its host, and can lose unsynced writes.
type MemoryDisk struct {
	fs   *vfs.MemFS
	addr string // of hosts on this disk that have no address: it must not change between them

	mu             sync.Mutex
	metadata       []byte
	syncedMetadata []byte // remains after a loss of power
	powerLost      bool
}

// Metadata returns the bytes that SetMetadata stored beside the log, which are durable at once.
// Both are safe for concurrent use.
func (d *MemoryDisk) Metadata() []byte {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.metadata
}

// SetMetadata replaces the metadata.
func (d *MemoryDisk) SetMetadata(b []byte) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.metadata = append([]byte(nil), b...)
	if !d.powerLost {
		d.syncedMetadata = d.metadata
	}
}

var memoryAddresses atomic.Uint64

// newMemoryAddress is an address no other host of the process has.
func newMemoryAddress() string { return fmt.Sprintf("memory-%d:1", memoryAddresses.Add(1)) }

// NewMemoryDisk returns an empty disk.
func NewMemoryDisk() *MemoryDisk {
	return &MemoryDisk{fs: vfs.NewStrictMem(), addr: newMemoryAddress()}
}

// PowerLoss stops the disk: nothing written or synced from now on survives. Close the host, call
// [MemoryDisk.PowerBack], and open a new host on the disk: it finds exactly the earlier syncs.
func (d *MemoryDisk) PowerLoss() {
	d.mu.Lock()
	d.powerLost = true
	d.mu.Unlock()
	d.fs.SetIgnoreSyncs(true)
}

// PowerBack drops writes not synced before [MemoryDisk.PowerLoss] and starts the disk again. No
// host may be open on it.
func (d *MemoryDisk) PowerBack() {
	d.fs.ResetToSyncedState()
	d.fs.SetIgnoreSyncs(false)
	d.mu.Lock()
	d.metadata, d.powerLost = d.syncedMetadata, false
	d.mu.Unlock()
}
