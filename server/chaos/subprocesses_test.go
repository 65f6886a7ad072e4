package chaos

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/admin"
	"github.com/signalbox-dev/signalbox/server/servertest/await"
	"github.com/signalbox-dev/signalbox/server/servertest/port"
)

// waitLimit bounds every wait: far above what any machine needs, as it only ends tests that fail.
const waitLimit = 3 * time.Minute

// eachLine calls f with each line of a file that another process appends to; a last line without
// its end is being written. A file that is not there yet is empty.
func eachLine(t *testing.T, path string, f func(line string) error) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		if !strings.HasSuffix(line, "\n") {
			return
		}
		if err := f(line); err != nil {
			t.Fatalf("%s: line %q: %v", path, line, err)
		}
	}
}

// instance is a server process on a folder and addresses that it keeps through restarts.
type instance struct {
	t                   *testing.T
	bin, dir            string
	listen, raft, admin string
	netns               string     // network namespace; empty: that of the test
	flags               []string   // beside those of the folder and the addresses
	wrapper             []string   // a command that runs it, such as one that gives it other clocks
	logFile             string     // default beside the folder
	reader              sync.Mutex // held: nobody reads the log of the process
	stderr              *os.File   // of the process that was started last
	starts              int        // how often it was started
	cmd                 *exec.Cmd
	ended               chan struct{} // the process that was started last is at its end
	err                 error         // how it ended; after ended
}

func startInstance(t *testing.T, bin string) *instance {
	in := &instance{t: t, bin: bin, dir: filepath.Join(t.TempDir(), "data"), listen: port.ForTest(t),
		raft: port.ForTest(t), admin: port.ForTest(t)}
	in.start()
	t.Cleanup(func() { in.killAndShowLog("server") })
	return in
}

// dial connects to the instance once it answers, and creates the node that all clients work in.
func (in *instance) dial(ctx context.Context) (c *client.Client) {
	in.t.Helper()
	await.True(in.t, "the server to answer", func() (ok bool) {
		var err error
		c, err = client.Dial(ctx, in.listen)
		return err == nil
	})
	selfCheck, grace := 500*time.Millisecond, 2*time.Second
	if _, err := admin.Nodes(c).Create(ctx, nodePath, admin.NodeConfig{SelfCheckPeriod: &selfCheck, GracePeriod: &grace}); err != nil {
		in.t.Fatal(err)
	}
	return c
}

// inNetns is a command that runs in a network namespace; empty is that of the test.
func inNetns(space, name string, args ...string) *exec.Cmd {
	if space == "" {
		return exec.Command(name, args...)
	}
	return exec.Command("ip", append([]string{"netns", "exec", space, name}, args...)...)
}

// start does not wait until it serves: clients try again by themselves. The log of one that ran
// before is kept.
func (in *instance) start() {
	in.t.Helper()
	if in.logFile == "" {
		in.logFile = in.dir + ".log"
	}
	log, err := os.OpenFile(in.logFile, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		in.t.Fatal(err)
	}
	read, write, err := os.Pipe()
	if err != nil {
		in.t.Fatal(err)
	}
	line := append(slices.Clone(in.wrapper), in.bin)
	// on every machine
	line = append(line, "serve", "--data", in.dir, "--listen", in.listen, "--raft", in.raft, "--admin", in.admin, "--shards", "4")
	line = append(line, in.flags...)
	in.cmd = inNetns(in.netns, line[0], line[1:]...)
	in.cmd.Stdout, in.cmd.Stderr, in.stderr = write, write, write
	in.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := in.cmd.Start(); err != nil {
		in.t.Fatal(err)
	}
	cmd, ended, copied := in.cmd, make(chan struct{}), make(chan struct{})
	in.ended = ended
	in.starts++
	go func() {
		defer close(copied)
		in.copyLog(log, read)
	}()
	go func() {
		defer close(ended)
		in.err = cmd.Wait()
		_ = write.Close()
		<-copied
	}()
}

// copyLog copies the log of a process to its file, until the process has ended.
func (in *instance) copyLog(to, from *os.File) {
	defer to.Close()
	defer from.Close()
	buf := make([]byte, 4<<10)
	for {
		n, err := from.Read(buf)
		in.reader.Lock()
		_, _ = to.Write(buf[:n])
		in.reader.Unlock()
		if err != nil {
			return
		}
	}
}

// stickLog has nobody read the log of the process: the pipe is full, and a write to it hangs until
// release is called.
func (in *instance) stickLog() (release func()) {
	in.reader.Lock()
	filled := make(chan struct{})
	go func() {
		defer close(filled)
		filler := bytes.Repeat([]byte("nobody reads this log\n"), 8<<10)
		_, _ = in.stderr.Write(filler) // more than a pipe takes
	}()
	return func() {
		in.reader.Unlock()
		<-filled
	}
}

func (in *instance) kill() {
	_ = in.cmd.Process.Kill()
	<-in.ended
}

// killAndShowLog ends it with the test, and shows the log of a failed one.
func (in *instance) killAndShowLog(name string) {
	in.kill()
	if in.t.Failed() {
		in.t.Logf("log of %s:\n%s", name, in.log())
	}
}

func (in *instance) log() string {
	b, _ := os.ReadFile(in.logFile)
	return string(b)
}

// awaitEnd waits until the process ends by itself.
func (in *instance) awaitEnd(what string) {
	in.t.Helper()
	select {
	case <-in.ended:
	case <-time.After(waitLimit):
		in.t.Fatalf("waited in vain for %s", what)
	}
}

// stop ends it gracefully.
func (in *instance) stop() {
	in.t.Helper()
	_ = in.cmd.Process.Signal(syscall.SIGTERM)
	<-in.ended
	if in.err != nil {
		in.t.Errorf("server did not end well on SIGTERM: %v", in.err)
	}
}

// actor is a client process.
type actor struct {
	role, name string
	cmd        *exec.Cmd
	errors     bytes.Buffer
	killed     bool
	ended      chan struct{} // its standard output is at its end

	mu      sync.Mutex
	reports []report
	next    chan struct{} // closed with the next report
}

// await waits until holds, which looks at the actor's reports, is true. False: the actor has ended
// without, or it took too long.
func (a *actor) await(holds func() bool) bool {
	limit := time.NewTimer(waitLimit)
	defer limit.Stop()
	for {
		a.mu.Lock()
		next := a.next
		a.mu.Unlock()
		if holds() {
			return true
		}
		select {
		case <-next:
		case <-a.ended:
			return holds()
		case <-limit.C:
			return false
		}
	}
}

// until waits like await, and fails the test in vain.
func (a *actor) until(t *testing.T, what string, holds func() bool) {
	t.Helper()
	if !a.await(holds) {
		t.Fatalf("waited in vain for %s\n%s", what, &a.errors)
	}
}

func (a *actor) pid() int { return a.cmd.Process.Pid }

// has reports whether the actor reported an event.
func (a *actor) has(event string) (report, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, r := range a.reports {
		if r.Event == event {
			return r, true
		}
	}
	return report{}, false
}

// count says how often the actor reported an event.
func (a *actor) count(event string) (n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, r := range a.reports {
		if r.Event == event {
			n++
		}
	}
	return n
}

// workload is all actors, dead ones too.
type workload struct {
	t       *testing.T
	dir     string // of the evidence
	in      *instance
	timeout time.Duration
	all     []*actor
	started int
}

func (c *workload) spawn(role string) *actor {
	c.t.Helper()
	c.started++
	name := fmt.Sprintf("%s-%d", role, c.started)
	a := startActor(c.t, "", role, name, fmt.Sprintf("%s=%s,%s,%s,%s,%s", roleEnv, role, name, c.in.listen, c.dir, c.timeout))
	c.all = append(c.all, a)
	return a
}

// startActor runs this test binary as an actor, told by the environment what to do, and follows
// what it says.
func startActor(t *testing.T, space, role, name, env string) *actor {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return startCommand(t, inNetns(space, exe), role, name, env)
}

// startLowPriorityActor is startActor for one that gets of the machine what others leave.
func startLowPriorityActor(t *testing.T, name, env string) *actor {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return startCommand(t, lowPriorityCommand(exe), name, name, env)
}

// lowPriorityCommand is a command that runs on the last processor only, and there while nothing
// else wants it. A low priority is not enough: the command that has the processor finishes its
// slice of some milliseconds before another that was woken gets its turn, at each of the hops of a
// request; and thousands of connections that are opened, written to and closed at once keep a
// processor in the kernel for tens of milliseconds, which nothing interrupts. Those would be other
// machines' processors.
func lowPriorityCommand(name string, args ...string) *exec.Cmd {
	line := append([]string{name}, args...)
	if path, err := exec.LookPath("chrt"); err == nil {
		line = append([]string{path, "--idle", "0"}, line...)
	} else {
		line = append([]string{"nice", "-n", "19"}, line...)
	}
	if path, err := exec.LookPath("taskset"); err == nil && lastProcessor() != "" {
		line = append([]string{path, "--cpu-list", lastProcessor()}, line...)
	}
	return exec.Command(line[0], line[1:]...)
}

// lastProcessor is the number of the last one of those that this process may run on; empty: the
// system does not say.
func lastProcessor() string {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(status)) {
		if list, ok := strings.CutPrefix(line, "Cpus_allowed_list:"); ok {
			list = strings.TrimSpace(list)
			return list[strings.LastIndexAny(list, ",-")+1:]
		}
	}
	return ""
}

func startCommand(t *testing.T, cmd *exec.Cmd, role, name, env string) *actor {
	t.Helper()
	a := &actor{role: role, name: name, cmd: cmd, ended: make(chan struct{}), next: make(chan struct{})}
	a.cmd.Env = append(os.Environ(), env, "GORACE=atexit_sleep_ms=0 "+os.Getenv("GORACE")) // else each sleeps a second at its end
	a.cmd.Stderr = &a.errors
	out, err := a.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := a.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(a.ended)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			var r report
			if json.Unmarshal(lines.Bytes(), &r) == nil {
				a.mu.Lock()
				a.reports = append(a.reports, r)
				close(a.next)
				a.next = make(chan struct{})
				a.mu.Unlock()
			}
		}
	}()
	return a
}

// alive lists the actors of a role that were not killed; all roles with "".
func (c *workload) alive(role string) []*actor {
	var out []*actor
	for _, a := range c.all {
		if !a.killed && (role == "" || a.role == role) {
			out = append(out, a)
		}
	}
	return out
}

// kill ends an actor with SIGKILL, writes its death into the slots' evidence once it is certain,
// and puts another in its place.
func (c *workload) kill(a *actor) {
	c.t.Helper()
	a.killed = true
	_ = a.cmd.Process.Kill()
	<-a.ended
	_ = a.cmd.Wait()
	f, err := openEvidence(c.dir, slots)
	if err != nil {
		c.t.Fatal(err)
	}
	defer f.Close()
	if _, err := fmt.Fprintf(f, "K 0 %d\n", a.pid()); err != nil {
		c.t.Fatal(err)
	}
	c.spawn(a.role)
}

// stop ends all actors gracefully, and fails the test for those that say anything was wrong.
func (c *workload) stop() {
	for _, a := range c.alive("") {
		_ = a.cmd.Process.Signal(syscall.SIGTERM)
	}
	for _, a := range c.alive("") {
		<-a.ended
		if err := a.cmd.Wait(); err != nil {
			c.t.Errorf("%s: %v\n%s", a.name, err, &a.errors)
		}
		a.killed = true
	}
	for _, a := range c.all {
		for _, bad := range []string{"expired", "failed"} {
			if r, ok := a.has(bad); ok {
				c.t.Errorf("%s (pid %d): %s: %s", a.name, a.pid(), bad, r.Text)
			}
		}
	}
}

// killIfStarted ends it for good, so that nothing of it is in use any more.
func (in *instance) killIfStarted() {
	if in.cmd != nil {
		in.kill()
	}
}
