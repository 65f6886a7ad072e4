package replica

import (
	"bytes"
	"io"
	"log"
	"sync"
)

// The storage asks the disk for its free space every now and then, which a memory disk cannot tell, and complains about it on the standard logger: the
// engine has no setting for another one. Hosts on disks in memory, and only they, keep those lines away from the output of tests.
var muteMemoryDisk = sync.OnceFunc(func() { log.SetOutput(withoutDiskUsage{log.Writer()}) })

type withoutDiskUsage struct{ w io.Writer }

var diskUsageLine = []byte("background error: vfs: not supported")

func (f withoutDiskUsage) Write(line []byte) (int, error) {
	if bytes.Contains(line, diskUsageLine) {
		return len(line), nil
	}
	return f.w.Write(line)
}
