package processtree

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
)

// Descendants lists the processes below pid in the tree, without those that have ended and that
// nobody has waited for. It may miss one that is started or that gets another parent meanwhile.
func Descendants(pid int) []int {
	if _, err := os.Stat("/proc/thread-self/children"); err != nil {
		return byParents(pid) // a kernel without CONFIG_PROC_CHILDREN
	}
	return byChildren(pid)
}

// byChildren follows the lists of children. What it costs does not depend on how many
// processes the machine has.
func byChildren(pid int) (list []int) {
	pids := childPIDs(pid)
	for i := 0; i < len(pids); i++ {
		if _, running := parentOf(pids[i]); running {
			list = append(list, pids[i])
		}
		pids = append(pids, childPIDs(pids[i])...)
	}
	return list
}

// byParents looks at the parents of all processes.
func byParents(pid int) (list []int) {
	children := map[int][]int{}
	for _, p := range allPIDs() {
		if parent, running := parentOf(p); running {
			children[parent] = append(children[parent], p)
		}
	}
	list = append(list, children[pid]...)
	for i := 0; i < len(list); i++ {
		list = append(list, children[list[i]]...)
	}
	return list
}

// Children lists the children of pid, also those that have ended and that nobody has waited for.
func Children(pid int) (list []int) {
	if _, err := os.Stat("/proc/thread-self/children"); err == nil {
		return childPIDs(pid)
	}
	for _, p := range allPIDs() {
		if parent, _ := parentOf(p); parent == pid {
			list = append(list, p)
		}
	}
	return list
}

func allPIDs() (list []int) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	for _, e := range entries {
		if p, err := strconv.Atoi(e.Name()); err == nil {
			list = append(list, p)
		}
	}
	return list
}

// childPIDs joins what the kernel lists as children of each thread of pid.
func childPIDs(pid int) (list []int) {
	threads, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	if err != nil {
		return nil
	}
	for _, t := range threads {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/children", pid, t.Name()))
		if err != nil {
			continue
		}
		for f := range strings.FieldsSeq(string(b)) {
			if n, err := strconv.Atoi(f); err == nil {
				list = append(list, n)
			}
		}
	}
	return list
}

// parentOf reads a process's state and parent, the third and fourth field of stat. The second, the
// name, may hold anything and ends with the last parenthesis.
func parentOf(pid int) (parent int, running bool) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, false
	}
	f := bytes.Fields(b[bytes.LastIndexByte(b, ')')+1:])
	if len(f) < 2 {
		return 0, false
	}
	parent, err = strconv.Atoi(string(f[1]))
	return parent, err == nil && string(f[0]) != "Z" && string(f[0]) != "X"
}
