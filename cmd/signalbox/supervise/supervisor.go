package supervise

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"slices"
	"syscall"
	"time"

	"github.com/signalbox-dev/signalbox/cmd/signalbox/processtree"
)

// overdueTime is how long a supervisor whose deadline has passed looks for a later one.
const overdueTime = 10 * time.Millisecond

// AsksForEnd reports whether a command that gets the signal is to end. SIGHUP does not count:
// services read their configuration again.
func AsksForEnd(s syscall.Signal) bool {
	return s == syscall.SIGTERM || s == syscall.SIGINT || s == syscall.SIGQUIT
}

// supervisor is the supervisor's own state.
type supervisor struct {
	command int           // process id
	group   bool          // the command leads a process group of its own
	reaped  chan struct{} // closed when no child is left
}

// Run is the supervisor's main function. fd is the socket. The signals of a list are caught and
// ignored: signalbox handles those that are sent to all processes of a service.
func Run(fd int, list []os.Signal) {
	// The death signal of the command is bound to the thread that starts it.
	runtime.LockOSThread()
	syscall.CloseOnExec(fd)
	socket := os.NewFile(uintptr(fd), "supervisor")
	if len(list) > 0 { // the command would inherit that signals are ignored, but not that they are caught
		signal.Notify(make(chan os.Signal, 1), list...)
	}
	becomeSubreaper()
	orders := make(chan Request)
	go func() {
		defer close(orders)
		for d := json.NewDecoder(socket); ; {
			var o Request
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
		code := CannotRun
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, exec.ErrNotFound) {
			code = NoCommand
		}
		_ = reports.Encode(Report{Code: code, Error: []byte(err.Error())})
		return
	}
	_ = reports.Encode(Report{Started: true})
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
func (w *supervisor) run(orders <-chan Request) Report {
	ended := make(chan syscall.WaitStatus, 1)
	go w.reap(ended)
	killed := func() Report {
		r := Report{Code: 128 + int(syscall.SIGKILL), Remaining: w.killAll()}
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
			return Report{Code: exitCode(ws), Remaining: w.killAll()}
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
			case w.group && AsksForEnd(o.Signal):
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
	for deadline, pause := time.Now().Add(killTimeout),
		100*time.Microsecond; ; pause = min(2*pause, 10*time.Millisecond) {
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
	list := processtree.Descendants(os.Getpid())
	if len(list) == 0 && syscall.Kill(w.command, 0) == nil {
		return []int{w.command}
	}
	return list
}

// signalAll signals all that is below the supervisor.
func (w *supervisor) signalAll(s syscall.Signal) {
	list := processtree.Descendants(os.Getpid())
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
