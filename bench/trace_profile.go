package bench

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/pprof"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/signalbox-dev/signalbox/loadgen"
)

// part is a part of a process's work: the stacks in which one of these functions comes first, seen
// from the innermost call.
type part struct {
	name      string
	functions []string // how their names begin
}

const (
	module     = "github.com/signalbox-dev/signalbox/"
	dragonboat = "github.com/lni/dragonboat/v4/"
	gnet       = "github.com/panjf2000/gnet/v2/"
)

// runtimeParts is what both processes do.
var runtimeParts = []part{
	{"switching between goroutines and threads", []string{"runtime.schedule", "runtime.findRunnable",
		"runtime.park_m", "runtime.futex", "runtime.mcall", "runtime.sysmon", "runtime.ready",
		"runtime.goschedImpl", "runtime.exitsyscall", "runtime.entersyscall", "runtime.wakep"}},
	{"collector", []string{"runtime.gcBgMarkWorker", "runtime.gcAssistAlloc", "runtime.bgsweep", "runtime.bgscavenge"}},
}

var serverParts = append([]part{
	{"sync", []string{"syscall.Fdatasync", "golang.org/x/sys/unix.Fdatasync"}},
	{"polling sockets", []string{"golang.org/x/sys/unix.EpollWait", gnet + "pkg/netpoll.epollWait", "runtime.netpoll"}},
	{"reading sockets", []string{"golang.org/x/sys/unix.Read"}},
	{"writing sockets", []string{"golang.org/x/sys/unix.Write", module + "server/transport.(*sendRing).send", gnet + "pkg/io"}},
	{"writing the log", []string{module + "shard/replica/logstore", module + "shard/replica/wal", "os.(*File)"}},
	{"applying", []string{module + "shard."}},
	{"leader tasks", []string{module + "shard/leader"}},
	{"delivery", []string{module + "server/delivery", module + "server/serving"}},
	{"requests", []string{module + "server/request", module + "server/session", module + "protocol"}},
	{"event loops and connections", []string{module + "server/transport", gnet}},
	{"proposal queue and replica", []string{module + "shard/replica."}},
	{"engine", []string{dragonboat, "github.com/lni"}},
}, runtimeParts...)

var loadParts = append([]part{
	{"sockets", []string{"internal/poll.(*FD)", "runtime.netpoll"}},
	{"the SDK", []string{module + "client", module + "protocol"}},
	{"contexts and timers of calls", []string{"context.", "time."}},
	{"the load itself", []string{module + "loadgen"}},
}, runtimeParts...)

// profile divides the CPU of both processes among their parts.
func (t *tracer) profile(ctx context.Context) error {
	own, served := filepath.Join(t.dir, "load.pprof"), filepath.Join(t.dir, "server.pprof")
	f, err := os.Create(own)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := pprof.StartCPUProfile(f); err != nil {
		return err
	}
	seconds := max(1, int(t.cfg.Length/time.Second))
	b, err := loadgen.HTTPGet(ctx, "http://"+t.server.addr[2]+"/debug/pprof/profile?seconds="+strconv.Itoa(seconds))
	pprof.StopCPUProfile()
	if err != nil {
		return err
	}
	if err := os.WriteFile(served, b, 0o600); err != nil {
		return err
	}
	for _, x := range []struct {
		who, file string
		parts     []part
		cpu       float64
	}{{"server", served, serverParts, t.serveCPU}, {"load", own, loadParts, t.ownCPU}} {
		out, err := exec.CommandContext(ctx, "go", "tool", "pprof", "-traces", "-unit=ms", x.file).Output()
		if err != nil {
			t.note(fmt.Sprintf("CPU was not divided: go tool pprof: %v.", err))
			return ctx.Err()
		}
		section := "CPU of the " + x.who + " for a pair"
		t.set(section, "all", Microseconds, x.cpu)
		shares, rest := profileShares(string(out), x.parts)
		for i, p := range x.parts {
			t.set(section, p.name, Microseconds, x.cpu*shares[i])
		}
		t.set(section, "others", Microseconds, x.cpu*rest)
	}
	return nil
}

// profileShares reads what `go tool pprof -traces` says, and gives the share of each part. A stack
// begins with the time, and its innermost function comes first.
func profileShares(text string, parts []part) (shares []float64, rest float64) {
	shares = make([]float64, len(parts))
	total, value, found := 0.0, 0.0, true
	end := func() {
		if !found {
			rest += value
		}
	}
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) == 0 {
			continue
		}
		if strings.HasPrefix(f[0], "---") {
			end()
			value, found = 0, true
			continue
		}
		if ms, ok := strings.CutSuffix(f[0], "ms"); ok && len(f) > 1 && value == 0 {
			n, err := strconv.ParseFloat(ms, 64)
			if err != nil {
				continue
			}
			value, found = n, false
			total += n
			f = f[1:]
		}
		if value == 0 || found {
			continue
		}
		for i, p := range parts {
			if slices.ContainsFunc(p.functions, func(begin string) bool { return strings.HasPrefix(f[0], begin) }) {
				shares[i] += value
				found = true
				break
			}
		}
	}
	end()
	for i := range shares {
		shares[i] /= max(total, 1)
	}
	return shares, rest / max(total, 1)
}
