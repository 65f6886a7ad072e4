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

// A command runs under a supervisor: a process of this binary that is the command's parent.
// signalbox sends it requests over a socket, to start the command and to signal it, and gets a
// report when the command has ended.
//
// On Linux the supervisor is a subreaper: a process whose parent has ended becomes the supervisor's
// child, whatever process group or session it has moved to. So all that the command started is
// below the supervisor in the tree of processes, and when the supervisor has no child left, nothing
// is left. If signalbox dies, the socket is closed and the supervisor kills all processes below it.
// If the supervisor is killed, the kernel kills the command, and the rest becomes the children of
// signalbox, which kills them.
//
// signalbox may be stopped (SIGSTOP), so that it cannot end the command when its lease is lost. So
// it tells the supervisor how long the lease may be relied on, again and again. If the last of
// these deadlines passes, the supervisor kills all.

// supervisorArg is the argument that makes this binary a supervisor. It is no verb: nobody types
// it.
const supervisorArg = "signalbox-supervisor"

// killTimeout is how long processes have to disappear after SIGKILL. Those that take longer are
// stuck in the kernel, or run as another user.
const killTimeout = 2 * time.Second

// overdueTime is how long a supervisor whose deadline has passed looks for a later one.
const overdueTime = 10 * time.Millisecond

// supervisorRequest is a message to the supervisor. The first one starts the command. Arguments are
// bytes: JSON would change a string that is not UTF-8.
type supervisorRequest struct {
	Args   [][]byte       `json:"args,omitempty"`
	Group  int            `json:"group,omitempty"`  // the command's process group; 0 is one of its own
	Signal syscall.Signal `json:"signal,omitempty"` // for the command, and for its group if it asks for an end
	End    syscall.Signal `json:"end,omitempty"`    // for all: SIGTERM or SIGKILL
	// Deadline is when all are killed, from now, unless another deadline comes before.
	Deadline time.Duration `json:"deadline,omitempty"`
}

// supervisorReport is the supervisor's answer, when all is over. Another one comes before it when
// the command has been started.
type supervisorReport struct {
	Started   bool   `json:"started,omitempty"` // the command runs; all else is empty
	Code      int    `json:"code"`              // exit code
	Error     []byte `json:"error,omitempty"`   // why the command could not be started
	Remaining []int  `json:"left,omitempty"`    // processes that could not be ended
	Expired   bool   `json:"expired,omitempty"` // the deadline passed
	// GaveUp: not all had ended when the supervisor did, or it was killed. What is left of them are
	// children of signalbox then.
	GaveUp bool `json:"gave_up,omitempty"`
}

// supervisorClient is signalbox's side of a supervisor.
type supervisorClient struct {
	cmd     *exec.Cmd
	socket  *os.File
	started chan struct{}          // closed when the command runs
	reports chan *supervisorReport // exactly one, of the end
}

// supervisors are the running supervisors of this process. The lock is held while one starts. In
// the table are also the processes that were below this one before the first supervisor: a shell
// that becomes signalbox by exec may have started them. Each other child of this process was left
// behind by a supervisor that gave up or was killed, or by one of the shell's processes: those that
// such a process starts later, and leaves behind, cannot be told apart.
var supervisors struct {
	sync.Mutex
	pids map[int]bool // nil: none has started
}

// startSupervisor starts a supervisor, and has it start the command.
func (c *child) startSupervisor(group int) (*supervisorClient, error) {
	exe, err := executable()
	if err != nil {
		return nil, err
	}
	ours, theirs, err := socketPair()
	if err != nil {
		return nil, err
	}
	defer theirs.Close()
	// The supervisor finds its end under the same number, so that files which the shell opened for
	// the command keep theirs.
	fd := int(theirs.Fd())
	w := &supervisorClient{cmd: c.command(exe, supervisorArg, strconv.Itoa(fd)), socket: ours,
		started: make(chan struct{}), reports: make(chan *supervisorReport, 1)}
	supervisors.Lock()
	defer supervisors.Unlock()
	if supervisors.pids == nil {
		supervisors.pids = make(map[int]bool)
		for _, pid := range descendants(os.Getpid()) {
			supervisors.pids[pid] = true
		}
	}
	becomeSubreaper()
	if _, err = unix.FcntlInt(uintptr(fd), unix.F_SETFD, 0); err == nil {
		err = w.cmd.Start()
		unix.CloseOnExec(fd)
	}
	if err != nil {
		ours.Close()
		return nil, err
	}
	supervisors.pids[w.cmd.Process.Pid] = true
	args := make([][]byte, len(c.args))
	for i, arg := range c.args {
		args[i] = []byte(arg)
	}
	w.send(supervisorRequest{Args: args, Group: group})
	go func() {
		d, r := json.NewDecoder(ours), new(supervisorReport)
		err := d.Decode(r)
		if err == nil && r.Started {
			close(w.started)
			r = new(supervisorReport)
			err = d.Decode(r)
		}
		if err != nil {
			r = &supervisorReport{GaveUp: true, Code: 128 + int(syscall.SIGKILL),
				Error: []byte("the process that watched over the command was killed, and the command with it")}
		}
		w.reports <- r
	}()
	return w, nil
}

// send ignores errors: a supervisor that is gone needs no requests.
func (w *supervisorClient) send(o supervisorRequest) { _ = json.NewEncoder(w.socket).Encode(o) }

func (w *supervisorClient) close(r *supervisorReport) {
	w.socket.Close()
	_ = w.cmd.Wait()
	supervisors.Lock()
	defer supervisors.Unlock()
	delete(supervisors.pids, w.cmd.Process.Pid)
	if r.GaveUp {
		left := append(killOrphans(supervisors.pids), r.Remaining...)
		slices.Sort(left)
		r.Remaining = slices.DeleteFunc(slices.Compact(left), func(pid int) bool { return syscall.Kill(pid, 0) == syscall.ESRCH })
	}
}

// killOrphans kills this process's children that are not in known, and all processes below them. A
// killed process may have started another one, which becomes a child only then. So it ends when it
// found none twice in a row.
func killOrphans(known map[int]bool) (left []int) {
	if !subreaper {
		return nil
	}
	none := 0
	for deadline, pause := time.Now().Add(killTimeout), 100*time.Microsecond; ; pause = min(2*pause, 10*time.Millisecond) {
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
	return os.NewFile(uintptr(fds[0]), "supervisor"), os.NewFile(uintptr(fds[1]), "supervisor"), nil
}

// supervisor is the supervisor's own state.
type supervisor struct {
	command int           // process id
	group   bool          // the command leads a process group of its own
	reaped  chan struct{} // closed when no child is left
}

// runSupervisor is the supervisor's main function.
func runSupervisor(fd int) {
	// The death signal of the command is bound to the thread that starts it.
	runtime.LockOSThread()
	syscall.CloseOnExec(fd)
	socket := os.NewFile(uintptr(fd), "supervisor")
	// Signals to all processes of a service are handled by signalbox. They are caught here, not
	// ignored, because the command would inherit that.
	if list := commandSignals(); len(list) > 0 {
		signal.Notify(make(chan os.Signal, 1), list...)
	}
	becomeSubreaper()
	orders := make(chan supervisorRequest)
	go func() {
		defer close(orders)
		for d := json.NewDecoder(socket); ; {
			var o supervisorRequest
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
	w := &supervisor{group: o.Group == 0, reaped: make(chan struct{})}
	args := make([]string, len(o.Args))
	for i, arg := range o.Args {
		args[i] = string(arg)
	}
	reports := json.NewEncoder(socket)
	var err error
	if w.command, err = startCommand(args, o.Group); err != nil {
		code := exitCannotRun
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, exec.ErrNotFound) {
			code = exitNoCommand
		}
		_ = reports.Encode(supervisorReport{Code: code, Error: []byte(err.Error())})
		return
	}
	_ = reports.Encode(supervisorReport{Started: true})
	r := w.run(orders)
	select {
	case <-w.reaped:
	default:
		r.GaveUp = true
	}
	_ = reports.Encode(r)
}

// run waits for the command's end, and carries out requests. When it returns, only the processes
// that the report names are left.
func (w *supervisor) run(orders <-chan supervisorRequest) supervisorReport {
	ended := make(chan syscall.WaitStatus, 1)
	go w.reap(ended)
	killed := func() supervisorReport {
		r := supervisorReport{Code: 128 + int(syscall.SIGKILL), Remaining: w.killAll()}
		select {
		case ws := <-ended:
			r.Code = exitCode(ws)
		default: // it is among those that are left
		}
		return r
	}
	var deadline <-chan time.Time
	overdue := false
	for {
		select {
		case ws := <-ended:
			return supervisorReport{Code: exitCode(ws), Remaining: w.killAll()}
		case <-deadline:
			if !overdue { // this process may have been stopped too, and a later deadline may wait to be read
				overdue, deadline = true, time.After(overdueTime)
				continue
			}
			r := killed()
			r.Expired = true
			return r
		case o, ok := <-orders:
			switch {
			case !ok, o.End == syscall.SIGKILL:
				return killed()
			case o.Deadline != 0:
				overdue, deadline = false, time.After(o.Deadline)
			case o.End != 0:
				w.signalAll(o.End)
			case w.group && asksForEnd(o.Signal):
				_ = syscall.Kill(-w.command, o.Signal)
			default:
				_ = syscall.Kill(w.command, o.Signal)
			}
		}
	}
}

// reap waits for all children: the command, and those that it left behind.
func (w *supervisor) reap(ended chan<- syscall.WaitStatus) {
	defer close(w.reaped)
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

// killAll kills all processes below the supervisor. A process may start another one while the tree
// is read. So it repeats that until the kernel reports that no child is left.
func (w *supervisor) killAll() (left []int) {
	for deadline, pause := time.Now().Add(killTimeout), 100*time.Microsecond; ; pause = min(2*pause, 10*time.Millisecond) {
		select {
		case <-w.reaped:
			return nil
		case <-time.After(pause):
		}
		if time.Now().After(deadline) {
			return w.remaining()
		}
		w.signalAll(syscall.SIGKILL)
	}
}

// remaining lists the processes below the supervisor, or the command where the tree of processes
// cannot be read.
func (w *supervisor) remaining() []int {
	list := descendants(os.Getpid())
	if len(list) == 0 && syscall.Kill(w.command, 0) == nil {
		return []int{w.command}
	}
	return list
}

// signalAll signals all that is below the supervisor.
func (w *supervisor) signalAll(s syscall.Signal) {
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

// startCommand starts the command with the input, output, environment and open files of this
// process.
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

// exitCode is the exit code of a command's end: its own, or 128 + the signal that ended it, as
// shells do.
func exitCode(ws syscall.WaitStatus) int {
	if ws.Signaled() {
		return 128 + int(ws.Signal())
	}
	return ws.ExitStatus()
}
