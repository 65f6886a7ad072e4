// Package supervise runs a command so that nothing of it outlives its lease. The command's parent
// is a supervisor: a process of this binary that gets requests over a socket, to start the command
// and to signal it, and reports when the command has ended.
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
//
//	w, err := supervise.Start(supervise.Command{Args: args, Stdout: os.Stdout})
//	w.Send(supervise.Request{Deadline: left})
//	report := w.Close(<-w.Reports)
package supervise

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/signalbox-dev/signalbox/cmd/signalbox/processtree"
)

// Argument makes this binary a supervisor. It is not a verb: nobody types it. The number of the
// socket's file follows it.
const Argument = "signalbox-supervisor"

// Exit codes of a command that could not be started, as shells have them.
const (
	CannotRun = 126
	NoCommand = 127
)

// killTimeout is how long processes have to disappear after SIGKILL. Those that take longer are
// stuck in the kernel, or run as another user.
const killTimeout = 2 * time.Second

// Request is a message to the supervisor. The first one starts the command. Arguments are
// bytes: JSON would change a string that is not UTF-8.
type Request struct {
	Args   [][]byte       `json:"args,omitempty"`
	Group  int            `json:"group,omitempty"`  // the command's process group; 0 is one of its own
	Signal syscall.Signal `json:"signal,omitempty"` // for the command, and for its group if it asks for an end
	End    syscall.Signal `json:"end,omitempty"`    // for all: SIGTERM or SIGKILL
	// Deadline is when all are killed, from now, unless another deadline comes before.
	Deadline time.Duration `json:"deadline,omitempty"`
}

// Report is the supervisor's answer when all is over. Another one comes before it when
// the command has been started.
type Report struct {
	Started   bool   `json:"started,omitempty"` // the command runs; all else is empty
	Code      int    `json:"code"`              // exit code
	Error     []byte `json:"error,omitempty"`   // why the command could not be started
	Remaining []int  `json:"left,omitempty"`    // processes that could not be ended
	Expired   bool   `json:"expired,omitempty"` // the deadline passed
	// GaveUp: not all had ended when the supervisor did, or it was killed. What is left of them are
	// children of signalbox then.
	GaveUp bool `json:"gave_up,omitempty"`
}

// Supervisor is a running supervisor, as signalbox sees it.
type Supervisor struct {
	Started <-chan struct{} // closed when the command runs
	Reports <-chan *Report  // gets exactly one, of the end
	cmd     *exec.Cmd
	socket  *os.File
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

// Command is a command, with its streams and environment.
type Command struct {
	Args           []string
	Env            []string // in addition to the process's own
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	Group          int // process group; 0: one of its own
}

// Start starts a supervisor, which starts the command.
func Start(c Command) (*Supervisor, error) {
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
	started, reports := make(chan struct{}), make(chan *Report, 1)
	w := &Supervisor{Started: started, Reports: reports, cmd: c.supervisor(exe, fd), socket: ours}
	supervisors.Lock()
	defer supervisors.Unlock()
	if supervisors.pids == nil {
		supervisors.pids = make(map[int]bool)
		for _, pid := range processtree.Descendants(os.Getpid()) {
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
	args := make([][]byte, len(c.Args))
	for i, arg := range c.Args {
		args[i] = []byte(arg)
	}
	w.Send(Request{Args: args, Group: c.Group})
	go func() {
		d, r := json.NewDecoder(ours), new(Report)
		err := d.Decode(r)
		if err == nil && r.Started {
			close(started)
			r = new(Report)
			err = d.Decode(r)
		}
		if err != nil {
			r = &Report{GaveUp: true, Code: 128 + int(syscall.SIGKILL),
				Error: []byte("the process that watched over the command was killed, and the command with it")}
		}
		reports <- r
	}()
	return w, nil
}

// supervisor makes the exec.Cmd of the supervisor, with the command's input, output and
// environment.
func (c *Command) supervisor(exe string, fd int) *exec.Cmd {
	cmd := exec.Command(exe, Argument, strconv.Itoa(fd))
	cmd.Args[0] = os.Args[0]
	cmd.Env = append(os.Environ(), c.Env...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = c.Stdin, c.Stdout, c.Stderr
	// a signal to our group ends the command, not its supervisor
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	// A process that could not be ended may keep its pipes open. Wait must not wait for them.
	cmd.WaitDelay = time.Second
	return cmd
}

// Send sends a request. It ignores errors: a supervisor that is gone needs no requests.
func (w *Supervisor) Send(o Request) { _ = json.NewEncoder(w.socket).Encode(o) }

// Close ends the supervisor that sent the report, and kills what it left. The report then lists the
// processes that could not be ended.
func (w *Supervisor) Close(r *Report) {
	w.socket.Close()
	_ = w.cmd.Wait()
	supervisors.Lock()
	defer supervisors.Unlock()
	delete(supervisors.pids, w.cmd.Process.Pid)
	if r.GaveUp {
		left := append(killOrphans(supervisors.pids), r.Remaining...)
		slices.Sort(left)
		r.Remaining = slices.DeleteFunc(slices.Compact(left), func(pid int) bool {
			return syscall.Kill(pid, 0) == syscall.ESRCH
		})
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
	for deadline, pause := time.Now().Add(killTimeout),
		100*time.Microsecond; ; pause = min(2*pause, 10*time.Millisecond) {
		left = left[:0]
		none++
		for _, pid := range processtree.Children(os.Getpid()) {
			if known[pid] {
				continue
			}
			none = 0
			for _, p := range append(processtree.Descendants(pid), pid) {
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
