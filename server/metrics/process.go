package metrics

import (
	"bytes"
	"os"
	"runtime"
	"runtime/metrics"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/signalbox-dev/signalbox/server/file"
)

// started is about when the process started.
var started = time.Now()

// runtimeMetrics are the rows that the Go runtime measures, by its names.
var runtimeMetrics = []struct {
	name string
	row  *Metric
}{
	{"/sched/goroutines:goroutines", GoGoroutines},
	{"/sched/gomaxprocs:threads", GoThreads},
	{"/memory/classes/heap/objects:bytes", GoHeapObjects},
	{"/memory/classes/heap/unused:bytes", GoHeapUnused},
	{"/memory/classes/heap/stacks:bytes", GoStacks},
	{"/memory/classes/total:bytes", GoMemory},
	{"/gc/heap/goal:bytes", GoHeapGoal},
	{"/gc/heap/allocs:bytes", GoAllocatedBytes},
	{"/gc/heap/allocs:objects", GoAllocatedObjects},
	{"/gc/cycles/total:gc-cycles", GoCollections},
	{"/cpu/classes/gc/total:cpu-seconds", GoCollectorCPU},
	{"/sync/mutex/wait/total:seconds", GoMutexWait},
}

// writeProcess writes what the runtime and the operating system know of the process.
func writeProcess(p *Page) {
	samples := make([]metrics.Sample, len(runtimeMetrics))
	for i := range samples {
		samples[i].Name = runtimeMetrics[i].name
	}
	metrics.Read(samples)
	for i := range samples {
		switch v := samples[i].Value; v.Kind() {
		case metrics.KindUint64:
			p.Write(runtimeMetrics[i].row, v.Uint64())
		case metrics.KindFloat64:
			p.Write(runtimeMetrics[i].row, v.Float64())
		}
	}
	p.Write(ProcessStart, float64(started.UnixMilli())/1000)
	var used syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &used) == nil {
		p.Write(ProcessCPU, time.Duration(used.Utime.Nano()+used.Stime.Nano()).Seconds())
	}
	var files syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files) == nil {
		p.Write(ProcessMaxFiles, files.Cur)
	}
	if runtime.GOOS == "linux" {
		writeProc(p)
	}
}

// openFiles counts the entries of a folder of /proc at most once in openFilesPeriod: with a hundred
// thousand connections that takes tens of milliseconds.
var openFiles struct {
	sync.Mutex
	at time.Time
	n  int
}

const openFilesPeriod = 10 * time.Second

// writeProc writes what Linux says in /proc.
func writeProc(p *Page) {
	if b, err := file.Read("/proc/self/statm", 1<<12); err == nil {
		pages := bytes.Fields(b)
		for i, row := range []*Metric{ProcessVirtual, ProcessResident} {
			if i < len(pages) {
				if n, err := strconv.ParseUint(string(pages[i]), 10, 64); err == nil {
					p.Write(row, n*uint64(os.Getpagesize()))
				}
			}
		}
	}
	openFiles.Lock()
	defer openFiles.Unlock()
	if now := time.Now(); openFiles.at.IsZero() || now.Sub(openFiles.at) > openFilesPeriod {
		if d, err := os.Open("/proc/self/fd"); err == nil {
			names, _ := d.Readdirnames(-1)
			_ = d.Close()
			openFiles.at, openFiles.n = now, len(names)-1 // without the folder's own
		}
	}
	if openFiles.n > 0 {
		p.Write(ProcessOpenFiles, openFiles.n)
	}
}

// BuildLabels are the labels of signalbox_build_info for a version of the binary.
func BuildLabels(version, revision string) []string {
	return []string{version, revision, strings.TrimPrefix(runtime.Version(), "go")}
}
