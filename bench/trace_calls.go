package bench

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/signalbox-dev/signalbox/loadgen"
)

// countedCalls are the system calls that are counted by themselves, and how they are shown.
var countedCalls = []struct {
	text  string
	names []string
}{
	{"reading: read", []string{"read"}},
	{"writing: write, writev, pwrite64, io_uring_enter", []string{"write", "writev", "pwrite64", "io_uring_enter"}},
	{"syncing: fdatasync", []string{"fdatasync"}},
	{"polling: epoll_wait, epoll_pwait", []string{"epoll_wait", "epoll_pwait"}},
	{"threads: futex", []string{"futex"}},
	{"threads: nanosleep", []string{"nanosleep"}},
	{"clocks: clock_gettime", []string{"clock_gettime"}},
}

const allCalls = "raw_syscalls:sys_enter"

// perf runs perf, and returns what it says. That it is not there, or may not count, is a note of
// the trace.
func (t *tracer) perf(ctx context.Context, args ...string) (out []byte, ok bool) {
	out, err := exec.CommandContext(ctx, "perf", args...).CombinedOutput()
	if err != nil {
		t.note(fmt.Sprintf("System calls were not counted: perf %s: %v. It comes with the package linux-perf, and needs root.",
			args[0], err))
		return nil, false
	}
	return out, true
}

// countCalls counts the system calls of the server, and then those of the load. The kernel counts,
// so that nothing waits.
func (t *tracer) countCalls(ctx context.Context) error {
	events := []string{allCalls}
	for _, c := range countedCalls {
		for _, name := range c.names {
			events = append(events, "syscalls:sys_enter_"+name)
		}
	}
	seconds := t.cfg.Length.Seconds()
	for _, x := range []struct {
		who string
		id  int
	}{{"server", t.server.Process().ID()}, {"load", os.Getpid()}} {
		before, begun, err := t.metrics(ctx)
		if err != nil {
			return err
		}
		out, ok := t.perf(ctx, "stat", "-x", ",", "-e", strings.Join(events, ","), "-p", strconv.Itoa(x.id),
			"--", "sleep", plain(seconds))
		if !ok {
			return ctx.Err()
		}
		after, ended, err := t.metrics(ctx)
		if err != nil {
			return err
		}
		// perf counts for a little less than the time between the two looks.
		share := seconds / ended.Sub(begun).Seconds()
		pairs := share * (after["signalbox_batch_commands_sum"] - before["signalbox_batch_commands_sum"]) / 2
		batches := share * (after["signalbox_batch_commands_count"] - before["signalbox_batch_commands_count"])
		counts := perfCounts(out)
		section := "System calls of the " + x.who + " in a pair"
		rest := counts[allCalls]
		t.set(section, "all", "", rest/pairs)
		for _, c := range countedCalls {
			n := 0.0
			for _, name := range c.names {
				n += counts["syscalls:sys_enter_"+name]
			}
			rest -= n
			t.set(section, c.text, "", n/pairs)
		}
		t.set(section, "others", "", rest/pairs)
		if x.who == "server" {
			t.set(section, "all, in a batch", "", counts[allCalls]/batches)
		}
	}
	return ctx.Err()
}

func (t *tracer) metrics(ctx context.Context) (map[string]float64, time.Time, error) {
	m, err := loadgen.ReadMetrics(ctx, t.server.addr[2])
	return m, time.Now(), err
}

// perfCounts reads what `perf stat -x ,` says: a line for each event, with the count in front.
func perfCounts(out []byte) map[string]float64 {
	counts := map[string]float64{}
	for line := range strings.Lines(string(out)) {
		f := strings.Split(line, ",")
		if len(f) < 3 {
			continue
		}
		if n, err := strconv.ParseFloat(f[0], 64); err == nil {
			counts[f[2]] = n
		}
	}
	return counts
}

// stages of a call that is alone, by the system calls that end them.
var stages = []string{
	"client's write to the server's read",
	"server's read to the write to the log: decoding, proposing, the engine's step",
	"write to the log, until its sync",
	"sync",
	"sync to the server's write: the engine, applying, delivery",
	"server's write to the client's read",
	"client's read to its next write: the caller is woken, and calls",
}

// follow follows the calls of the one caller by the system calls that both processes make.
func (t *tracer) follow(ctx context.Context) error {
	server, own := t.server.Process().ID(), os.Getpid()
	sockets := map[int]map[int]bool{server: socketsOf(server), own: socketsOf(own)}
	file := filepath.Join(t.dir, "perf.data")
	var events []string
	for _, name := range []string{"read", "write", "writev", "pwrite64", "fdatasync"} {
		events = append(events, "-e", "syscalls:sys_enter_"+name, "-e", "syscalls:sys_exit_"+name)
	}
	args := append([]string{"record", "-q", "-o", file}, events...)
	if _, ok := t.perf(ctx, append(args, "-p", fmt.Sprintf("%d,%d", server, own), "--", "sleep", "1")...); !ok {
		return ctx.Err()
	}
	out, ok := t.perf(ctx, "script", "-i", file, "--ns", "-F", "pid,tid,time,event,trace")
	if !ok {
		return ctx.Err()
	}
	for i, took := range stageTimes(parseCalls(out), server, own, sockets) {
		t.set("Time of a call that is alone, by its system calls, medians", stages[i], Microseconds, StatOf(took).Median)
	}
	return nil
}

// socketsOf are the open files of a process: true for sockets, false for files.
func socketsOf(id int) map[int]bool {
	kinds := map[int]bool{}
	dir := fmt.Sprintf("/proc/%d/fd", id)
	list, _ := os.ReadDir(dir)
	for _, x := range list {
		fd, err := strconv.Atoi(x.Name())
		if err != nil {
			continue
		}
		to, err := os.Readlink(filepath.Join(dir, x.Name()))
		switch {
		case err != nil:
		case strings.HasPrefix(to, "socket:"):
			kinds[fd] = true
		case strings.HasPrefix(to, "/"):
			kinds[fd] = false
		}
	}
	return kinds
}

// systemCall is one that has ended.
type systemCall struct {
	process    int
	name       string
	fd         int
	begin, end time.Duration
	result     int64
}

var perfLine = regexp.MustCompile(`^\s*(\d+)/(\d+)\s+(\d+)\.(\d+):\s+syscalls:sys_(enter|exit)_(\w+):\s+(?:fd: )?(0x[0-9a-f]+)`)

// parseCalls reads what `perf script` says, and joins the begin and the end of each call. They are
// in the order of their ends.
func parseCalls(out []byte) []systemCall {
	var list []systemCall
	open := map[string]systemCall{} // by thread
	lines := bufio.NewScanner(bytes.NewReader(out))
	for lines.Scan() {
		m := perfLine.FindStringSubmatch(lines.Text())
		if m == nil {
			continue
		}
		process, _ := strconv.Atoi(m[1])
		seconds, _ := strconv.ParseInt(m[3], 10, 64)
		nanos, _ := strconv.ParseInt(m[4], 10, 64)
		at := time.Duration(seconds)*time.Second + time.Duration(nanos)
		value, _ := strconv.ParseUint(m[7][2:], 16, 64)
		if m[5] == "enter" {
			open[m[2]] = systemCall{process: process, name: m[6], fd: int(value), begin: at}
			continue
		}
		if c, ok := open[m[2]]; ok && c.name == m[6] {
			delete(open, m[2])
			c.end, c.result = at, int64(value)
			list = append(list, c)
		}
	}
	return list
}

// stageTimes cuts calls of a client that makes one after the other into stages, in microseconds. A
// call in which something else came between is left out.
func stageTimes(calls []systemCall, server, client int, sockets map[int]map[int]bool) [][]float64 {
	times := make([][]float64, len(stages))
	var marks []time.Duration // the ends of the stages so far, the client's write in front
	var logged []systemCall   // writes to the log and syncs of the present call
	for _, c := range calls {
		socket, known := sockets[c.process][c.fd]
		if !known || c.result < 0 {
			continue
		}
		read := c.name == "read"
		switch {
		case read && c.result == 0, read && !socket:
		case c.process == client && !read && socket:
			if len(marks) == len(stages) {
				marks = append(marks, c.begin)
				for i := range stages {
					times[i] = append(times[i], float64((marks[i+1]-marks[i]).Nanoseconds())/1e3)
				}
			}
			marks, logged = append(marks[:0], c.begin), logged[:0]
		case c.process == server && read && len(marks) == 1:
			marks = append(marks, c.end)
		case c.process == server && !socket && len(marks) == 2:
			logged = append(logged, c)
		case c.process == server && socket && !read && len(marks) == 2 && len(logged) > 0:
			// Without a sync the write is one.
			last := logged[len(logged)-1]
			marks = append(marks, logged[0].begin, last.begin, last.end, c.begin)
		case c.process == client && read && len(marks) == 6:
			marks = append(marks, c.end)
		}
	}
	return times
}
