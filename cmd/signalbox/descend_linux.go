package main

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
)

// process names one process for good: ids are used again, an id and the moment of its start are not.
type process struct {
	pid   int
	start string // in ticks since boot, as /proc has it
}

// descendants lists what pid has started, and what that has started, as far as the chain of parents reaches. A process that outlived its parent is no
// longer in it.
func descendants(pid int) []process {
	var list []process
	pids := childrenOf(pid)
	for i := 0; i < len(pids); i++ {
		if start, ok := startOf(pids[i]); ok {
			list = append(list, process{pid: pids[i], start: start})
		}
		pids = append(pids, childrenOf(pids[i])...)
	}
	return list
}

// alive says whether the process is still there.
func (p process) alive() bool {
	start, ok := startOf(p.pid)
	return ok && start == p.start
}

func childrenOf(pid int) []int {
	var list []int
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

// startOf reads the 22nd field of stat; the second, the name, may hold anything and ends with the last parenthesis.
func startOf(pid int) (string, bool) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return "", false
	}
	fields := bytes.Fields(b[bytes.LastIndexByte(b, ')')+1:])
	if len(fields) < 20 {
		return "", false
	}
	return string(fields[19]), true
}
