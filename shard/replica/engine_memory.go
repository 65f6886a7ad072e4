package replica

import _ "unsafe" // for go:linkname

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

// engineEntryListLen is what the engine had. It is 0 if the engine has no such settings any more.
var engineEntryListLen uint64

func init() {
	engineEntryListLen = entryListLen
	entryListLen, minEntryListFree = 4, 1
}
