package engine

import (
	_ "unsafe" // for go:linkname

	"github.com/signalbox-dev/signalbox/shard/replica/logstore"
)

// The engine keeps a group's newest entries in a list. It allocates the list again whenever all
// entries are applied, which on a leader with few callers is after each batch, with room for 512
// entries: 40 KiB. That is a large allocation a batch, and at thousands of small batches a second
// ten collections a second. An entry is a whole batch here, and one to a few are in flight: room
// for 4 is enough, and the list grows if it must.
//
// The engine has these settings, but takes them only from a file in the folder in which the process
// is started. So they are set where it keeps them.
//
//go:linkname entryListLen github.com/lni/dragonboat/v4/internal/raft.entrySliceSize
var entryListLen uint64

// minEntryListFree is the room that the engine makes a new list for when the present one has less.
//
//go:linkname minEntryListFree github.com/lni/dragonboat/v4/internal/raft.minEntrySliceSize
var minEntryListFree uint64

// formerEntryListLen is the engine's own value, or 0 if the engine has no such settings any more.
var formerEntryListLen uint64

// maxMessage is the most bytes of entries that the engine puts into one message to another replica.
// It had 64 MiB, and a replica that comes back got as many again with each of its answers. A leader
// sends at most some batches at once to a replica that is up to date, which is less.
//
//go:linkname maxMessage github.com/lni/dragonboat/v4/internal/raft.maxEntrySize
var maxMessage uint64

// formerMaxMessage is the engine's own value.
var formerMaxMessage uint64

func init() {
	formerEntryListLen, formerMaxMessage = entryListLen, maxMessage
	entryListLen, minEntryListFree = 4, 1
	maxMessage = logstore.MessageSize
}
