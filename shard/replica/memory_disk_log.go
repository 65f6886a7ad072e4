package replica

import (
	"bytes"
	"io"
	"log"
	"sync"
)

// The storage asks a disk for its free space now and then, which a memory disk does not know, and
// complains on the standard logger. The engine has no setting for another logger. Only hosts on
// memory disks drop these lines.
var muteMemoryDisk = sync.OnceFunc(func() { log.SetOutput(withoutDiskUsage{log.Writer()}) })

type withoutDiskUsage struct{ w io.Writer }

var diskUsageLine = []byte("background error: vfs: not supported")

func (f withoutDiskUsage) Write(line []byte) (int, error) {
	if bytes.Contains(line, diskUsageLine) {
		return len(line), nil
	}
	return f.w.Write(line)
}
