package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A command runs under a watcher: a process of this binary that is the command's parent. signalbox tells it over a socket what to
// start and whom to signal, and it tells how the command ended.
//
// On Linux the watcher is a subreaper: a process whose parent has ended becomes the watcher's child, whatever process group or
// session it has moved to. So all that the command started is below the watcher in the tree of processes, and when the watcher has
// no child left, nothing is left. If signalbox dies, however it dies, the socket is closed and the watcher kills what is below it.
// If the watcher is killed, the kernel kills the command, and the rest becomes the children of signalbox, which kills them.

// watcherArg is the argument that makes this binary a watcher. It is no verb: nobody types it.
const watcherArg = "signalbox-watcher"

// killPatience is how long processes have to disappear after SIGKILL. Those that take longer are stuck in the kernel, or run as
// another user whom we may not signal.
const killPatience = 2 * time.Second

// order is what signalbox tells the watcher. The first one starts the command.
type order struct {
	Args   []string       `json:"args,omitempty"`
	Group  int            `json:"group,omitempty"`  // the command's process group; 0 is one of its own
	Signal syscall.Signal `json:"signal,omitempty"` // for the command
	End    syscall.Signal `json:"end,omitempty"`    // for all: SIGTERM or SIGKILL
}

// report is the watcher's answer, when all is over.
type report struct {
	Code  int    `json:"code"`            // exit code
	Error string `json:"error,omitempty"` // why the command could not be started
	Left  []int  `json:"left,omitempty"`  // processes that could not be ended
}

// watched is signalbox's side of a watcher.
type watched struct {
	cmd     *exec.Cmd
	socket  *os.File
	reports chan *report // exactly one
}

// watchers are the watchers of this process. The lock is held while one is started, so that each child of this process that is not
// in the table was left behind by a watcher that was killed.
var watchers = struct {
	sync.Mutex
	pids map[int]bool
}{pids: map[int]bool{}}

// startWatcher starts a watcher, and has it start the command.
func (c *child) startWatcher(group int) (*watched, error) {
	exe, err := executable()
	if err != nil {
		return nil, err
	}
	ours, theirs, err := socketPair()
	if err != nil {
		return nil, err
	}
	defer theirs.Close()
	// The watcher finds its end under the same number, so that files which the shell opened for the command keep theirs.
	fd := int(theirs.Fd())
	w := &watched{cmd: c.command(exe, watcherArg, strconv.Itoa(fd)), socket: ours, reports: make(chan *report, 1)}
	watchers.Lock()
	defer watchers.Unlock()
	becomeSubreaper()
	if _, err = unix.FcntlInt(uintptr(fd), unix.F_SETFD, 0); err == nil {
		err = w.cmd.Start()
		unix.CloseOnExec(fd)
	}
	if err != nil {
		ours.Close()
		return nil, err
	}
	watchers.pids[w.cmd.Process.Pid] = true
	w.send(order{Args: c.args, Group: group})
	go func() {
		r := new(report)
		if err := json.NewDecoder(ours).Decode(r); err != nil {
			r = &report{Code: 128 + int(syscall.SIGKILL), Error: "the process that watched over the command was killed, and the command with it"}
		}
		w.reports <- r
	}()
	return w, nil
}

// send tells the watcher something. A watcher that is gone needs no orders.
func (w *watched) send(o order) { _ = json.NewEncoder(w.socket).Encode(o) }

// close waits for the watcher's end.
func (w *watched) close(r *report) {
	w.socket.Close()
	_ = w.cmd.Wait()
	watchers.Lock()
	defer watchers.Unlock()
	delete(watchers.pids, w.cmd.Process.Pid)
	r.Left = append(r.Left, killStrays(watchers.pids)...)
}

// killStrays kills this process's children but for those in known, and what is below them. One that
// is killed may have started another one, which becomes a child only then: so there is an end when
// none was found twice in a row.
func killStrays(known map[int]bool) (left []int) {
	if !subreaper {
		return nil
	}
	none := 0
	for deadline, pause := time.Now().Add(killPatience), 100*time.Microsecond; ; pause = min(2*pause, 10*time.Millisecond) {
		left = left[:0]
		none++
		for _, pid := range childrenOf(os.Getpid()) {
			if known[pid] {
				continue
			}
			none = 0
			for _, p := range append(descendants(pid), pid) {
				_ = syscall.Kill(p, syscall.SIGKILL)
			}
			if got, err := syscall.Wait4(pid, nil, syscall.WNOHANG, nil); got != pid && err == nil {
				left = append(left, pid)
			}
		}
		if none == 2 || time.Now().After(deadline) {
			return left
		}
		time.Sleep(pause)
	}
}

// socketPair makes the two ends of a stream. Neither is inherited by commands.
func socketPair() (ours, theirs *os.File, err error) {
	syscall.ForkLock.RLock()
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err == nil {
		syscall.CloseOnExec(fds[0])
		syscall.CloseOnExec(fds[1])
	}
	syscall.ForkLock.RUnlock()
	if err != nil {
		return nil, nil, fmt.Errorf("socketpair: %w", err)
	}
	_ = syscall.SetNonblock(fds[0], true) // so that its reader ends when it is closed
	return os.NewFile(uintptr(fds[0]), "watcher"), os.NewFile(uintptr(fds[1]), "watcher"), nil
}

// watcher is the watcher's own state.
type watcher struct {
	command int           // process id
	group   bool          // the command leads a process group of its own
	gone    chan struct{} // closed when no child is left
}

// watch is the watcher's main function.
func watch(fd int) {
	// The death signal of the command is bound to the thread that starts it.
	runtime.LockOSThread()
	syscall.CloseOnExec(fd)
	socket := os.NewFile(uintptr(fd), "watcher")
	// Signals that reach all processes of a service are for signalbox to judge. They are caught rather than ignored, for the command
	// would inherit that.
	if list := endings(); len(list) > 0 {
		signal.Notify(make(chan os.Signal, 1), list...)
	}
	becomeSubreaper()
	orders := make(chan order)
	go func() {
		defer close(orders)
		for d := json.NewDecoder(socket); ; {
			var o order
			if d.Decode(&o) != nil {
				return // signalbox has ended
			}
			orders <- o
		}
	}()
	o, ok := <-orders
	if !ok || len(o.Args) == 0 {
		return
	}
	w := &watcher{group: o.Group == 0, gone: make(chan struct{})}
	var err error
	if w.command, err = startCommand(o.Args, o.Group); err != nil {
		code := exitCannotRun
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, exec.ErrNotFound) {
			code = exitNoCommand
		}
		_ = json.NewEncoder(socket).Encode(report{Code: code, Error: err.Error()})
		return
	}
	_ = json.NewEncoder(socket).Encode(w.run(orders))
}

// run waits for the command's end and does what it is told. When it returns, nothing is left but what the report names.
func (w *watcher) run(orders <-chan order) report {
	ended := make(chan syscall.WaitStatus, 1)
	go w.reap(ended)
	for {
		select {
		case ws := <-ended:
			return report{Code: exitCode(ws), Left: w.killAll()}
		case o, ok := <-orders:
			switch {
			case !ok, o.End == syscall.SIGKILL:
				r := report{Code: 128 + int(syscall.SIGKILL), Left: w.killAll()}
				select {
				case ws := <-ended:
					r.Code = exitCode(ws)
				default: // it is among those that are left
				}
				return r
			case o.End != 0:
				w.signalAll(o.End)
			case w.group:
				_ = syscall.Kill(-w.command, o.Signal)
			default:
				_ = syscall.Kill(w.command, o.Signal)
			}
		}
	}
}

// reap waits for all children: the command, and those that it left behind.
func (w *watcher) reap(ended chan<- syscall.WaitStatus) {
	defer close(w.gone)
	for {
		var ws syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &ws, 0, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil:
			return // there is no child any more
		case pid == w.command:
			ended <- ws
		}
	}
}

// killAll kills all that is below the watcher. A process may start another one while the tree is read, so it is read again until no
// child is left, which the kernel tells without a race.
func (w *watcher) killAll() (left []int) {
	for deadline, pause := time.Now().Add(killPatience), 100*time.Microsecond; ; pause = min(2*pause, 10*time.Millisecond) {
		select {
		case <-w.gone:
			return nil
		case <-time.After(pause):
		}
		if time.Now().After(deadline) {
			return w.left()
		}
		w.signalAll(syscall.SIGKILL)
	}
}

// left lists what is below the watcher; where the tree of processes cannot be read, the command.
func (w *watcher) left() []int {
	list := descendants(os.Getpid())
	if len(list) == 0 && syscall.Kill(w.command, 0) == nil {
		return []int{w.command}
	}
	return list
}

// signalAll signals all that is below the watcher.
func (w *watcher) signalAll(s syscall.Signal) {
	list := descendants(os.Getpid())
	inGroup := func(pid int) bool {
		g, err := syscall.Getpgid(pid)
		return err == nil && g == w.command
	}
	switch {
	case len(list) == 0 && w.group: // where the tree of processes cannot be read
		_ = syscall.Kill(-w.command, s)
	case len(list) == 0:
		_ = syscall.Kill(w.command, s)
	case s == syscall.SIGKILL && w.group && slices.ContainsFunc(list, inGroup):
		_ = syscall.Kill(-w.command, s) // all at once, even those that are just being started
	}
	for _, pid := range list {
		_ = syscall.Kill(pid, s)
	}
}

// startCommand starts the command with the input, output, environment and open files of this process.
func startCommand(args []string, group int) (pid int, err error) {
	cmd := exec.Command(args[0])
	if cmd.Err != nil {
		return 0, cmd.Err
	}
	attr := &syscall.ProcAttr{Env: os.Environ(), Files: []uintptr{0, 1, 2}, Sys: commandAttr(group)}
	if pid, err = syscall.ForkExec(cmd.Path, args, attr); err != nil {
		return 0, &fs.PathError{Op: "fork/exec", Path: cmd.Path, Err: err}
	}
	return pid, nil
}

// exitCode is the exit code of a command's end: its own, or 128 + the signal that ended it, as shells do.
func exitCode(ws syscall.WaitStatus) int {
	if ws.Signaled() {
		return 128 + int(ws.Signal())
	}
	return ws.ExitStatus()
}
