// How is a process held to a part of a core?

package bench

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// quotaPeriod is short, so that a server that has used its part waits for milliseconds: with
// Linux's 100 ms it would stand still for so long that its followers miss it.
const quotaPeriod = 20 * time.Millisecond

// cpuQuotas bounds how much CPU each of some processes may use, with control groups of version 1 or
// 2. It needs root.
type cpuQuotas struct {
	parent   string // folder of the group that the groups are made in
	v2       bool
	children []string
}

var errNoQuotas = errors.New(
	"this test needs control groups that bound CPU: run it on Linux, as root, where the controller cpu may be used")

// newCPUQuotas finds where groups can be made.
func newCPUQuotas() (*cpuQuotas, error) {
	mounts, err := os.ReadFile("/proc/mounts")
	if err != nil {
		return nil, errNoQuotas
	}
	own, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return nil, errNoQuotas
	}
	q, err := findCPUController(string(mounts), string(own))
	if err != nil {
		return nil, err
	}
	if q.v2 { // those of a group that passes the controller on
		if err := os.WriteFile(filepath.Join(q.parent, "cgroup.subtree_control"), []byte("+cpu"), 0); err != nil {
			return nil, fmt.Errorf("%w: %w", errNoQuotas, err)
		}
	}
	probe, err := q.add()
	if err != nil {
		return nil, err
	}
	if err := q.limit(probe, 0.5); err != nil {
		q.close()
		return nil, fmt.Errorf("%w: %w", errNoQuotas, err)
	}
	q.close()
	return q, nil
}

// findCPUController reads /proc/mounts and /proc/self/cgroup. Version 1 is preferred where both are
// mounted, because its controller is then not in version 2's tree.
func findCPUController(mounts, own string) (*cpuQuotas, error) {
	groupOf := func(controller string) string { // this process's own, below a mount point
		for line := range strings.Lines(own) {
			f := strings.SplitN(strings.TrimSpace(line), ":", 3)
			if len(f) == 3 && slices.Contains(strings.Split(f[1], ","), controller) {
				return f[2]
			}
		}
		return "/"
	}
	var unified string
	for line := range strings.Lines(mounts) {
		f := strings.Fields(line)
		switch {
		case len(f) < 4:
		case f[2] == "cgroup" && slices.Contains(strings.Split(f[3], ","), "cpu"):
			return &cpuQuotas{parent: filepath.Join(f[1], groupOf("cpu"))}, nil
		case f[2] == "cgroup2":
			unified = f[1]
		}
	}
	if unified == "" {
		return nil, errNoQuotas
	}
	return &cpuQuotas{parent: filepath.Join(unified, groupOf("")), v2: true}, nil
}

// add makes a group without a bound, and returns its number.
func (q *cpuQuotas) add() (int, error) {
	dir, err := os.MkdirTemp(q.parent, "signalbox-bench-")
	if err != nil {
		return 0, fmt.Errorf("%w: %w", errNoQuotas, err)
	}
	q.children = append(q.children, dir)
	return len(q.children) - 1, nil
}

// enter moves a process, with all of its threads, into a group.
func (q *cpuQuotas) enter(group, pid int) error {
	return os.WriteFile(filepath.Join(q.children[group], "cgroup.procs"), []byte(strconv.Itoa(pid)), 0)
}

// limit bounds a group to so many cores; 0 takes the bound away.
func (q *cpuQuotas) limit(group int, cores float64) error {
	period := strconv.FormatInt(quotaPeriod.Microseconds(), 10)
	quota, none := strconv.FormatInt(int64(cores*float64(quotaPeriod.Microseconds())), 10), "-1"
	if q.v2 {
		none = "max"
	}
	if cores == 0 {
		quota = none
	}
	dir := q.children[group]
	if q.v2 {
		return os.WriteFile(filepath.Join(dir, "cpu.max"), []byte(quota+" "+period), 0)
	}
	if err := os.WriteFile(filepath.Join(dir, "cpu.cfs_period_us"), []byte(period), 0); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "cpu.cfs_quota_us"), []byte(quota), 0)
}

// close removes the groups, whose processes have ended.
func (q *cpuQuotas) close() {
	for _, dir := range q.children {
		_ = os.Remove(dir)
	}
	q.children = nil
}
