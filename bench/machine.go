// On which machine was a run made?

package bench

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"time"
)

// Machine is the machine of a run.
type Machine struct {
	Cores  int     `json:"cores"`
	CPU    string  `json:"cpu"`
	Memory uint64  `json:"memory_bytes"`
	System string  `json:"system"`
	Go     string  `json:"go"`
	Disk   string  `json:"disk"`     // file system of the data folders
	Fsync  float64 `json:"fsync_ms"` // one append of 4 KiB made durable, p50
	Files  uint64  `json:"open_files_limit"`
}

// ThisMachine looks at the machine, and at the disk of a folder.
func ThisMachine(dir string) (Machine, error) {
	m := Machine{Cores: runtime.NumCPU(), CPU: runtime.GOARCH, System: runtime.GOOS + "/" + runtime.GOARCH,
		Go: runtime.Version(), Disk: fileSystem(dir), Files: openFiles()}
	if b, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		if f := regexp.MustCompile(`(?m)^model name\s*:\s*(.+)$`).FindSubmatch(b); f != nil {
			m.CPU = string(f[1])
		}
	}
	if b, err := os.ReadFile("/proc/sys/kernel/osrelease"); err == nil {
		m.System += " " + strings.TrimSpace(string(b))
	}
	if b, err := os.ReadFile("/proc/meminfo"); err == nil {
		var kb uint64
		if _, err := fmt.Sscanf(string(b), "MemTotal: %d kB", &kb); err == nil {
			m.Memory = kb << 10
		}
	}
	var err error
	m.Fsync, err = fsyncProbe(dir)
	return m, err
}

// tick of the system's CPU times: USER_HZ is 100 on every architecture that Go runs on.
const tick = 10 * time.Millisecond

// machineCPU returns the CPU time of all programs and the system since the machine's start; 0 where
// it is unknown.
func machineCPU() time.Duration {
	b, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0
	}
	var n [7]int64 // user nice system idle iowait irq softirq
	if _, err := fmt.Sscanf(string(b), "cpu %d %d %d %d %d %d %d", &n[0], &n[1], &n[2], &n[3], &n[4], &n[5], &n[6]); err != nil {
		return 0
	}
	return time.Duration(n[0]+n[1]+n[2]+n[5]+n[6]) * tick
}

// fsyncProbe appends and syncs for a moment. If this costs nothing, dir is on no real disk, and a
// comparison of durable servers there is worthless.
func fsyncProbe(dir string) (float64, error) {
	f, err := os.Create(filepath.Join(dir, "fsync-probe"))
	if err != nil {
		return 0, err
	}
	defer os.Remove(f.Name())
	defer f.Close()
	block := make([]byte, 4096)
	var took []float64
	for range 200 {
		t := time.Now()
		if _, err := f.Write(block); err != nil {
			return 0, err
		}
		if err := f.Sync(); err != nil {
			return 0, err
		}
		took = append(took, float64(time.Since(t).Nanoseconds())/1e6)
	}
	slices.Sort(took)
	return took[len(took)/2], nil
}

// Slug is the machine in the name of a file.
func (m Machine) Slug() string {
	words := strings.FieldsFunc(strings.ToLower(m.CPU),
		func(r rune) bool { return !(r >= 'a' && r <= 'z' || r >= '0' && r <= '9') })
	return fmt.Sprintf("%d-cores-%s", m.Cores, strings.Join(words, "-"))
}

func (m Machine) String() string {
	return fmt.Sprintf("%d cores (%s), %s of memory, %s, %s; disk: %s, an append made durable in %s ms",
		m.Cores, m.CPU, amount(float64(m.Memory), Bytes), m.System, m.Go,
		m.Disk, digits(m.Fsync))
}
