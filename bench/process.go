// How is a server's process started and stopped, and how much CPU and memory does it use?

package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/signalbox-dev/signalbox/loadgen"
	"github.com/signalbox-dev/signalbox/server/servertest/port"
)

const (
	startTimeout = 60 * time.Second // until a server answers
	stopTimeout  = 10 * time.Second // until it ends by itself; then it is killed
	logTail      = 600              // bytes of a server's last words in an error
)

// Process is a server under measurement. It runs alone in a process of its own, so that its memory
// and CPU are distinct from the load's.
type Process struct {
	cmd  *exec.Cmd
	log  string
	done chan struct{} // closed when it has ended
	once sync.Once

	// Collect, if not nil, makes the server collect its garbage, so that its memory is memory in
	// use.
	Collect func(ctx context.Context) error
}

// StartProcess starts a program with a folder as its working directory, where its output goes too,
// and waits until ready says nil.
func StartProcess(
	ctx context.Context, dir string, ready func(ctx context.Context) error, program string, args ...string,
) (*Process, error) {
	out, err := os.Create(filepath.Join(dir, "output.log"))
	if err != nil {
		return nil, err
	}
	defer out.Close()
	p := &Process{cmd: exec.Command(program, args...), log: out.Name(), done: make(chan struct{})}
	p.cmd.Dir = dir
	p.cmd.Stdout, p.cmd.Stderr = out, out
	p.cmd.SysProcAttr = procAttr()
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	go func() {
		_ = p.cmd.Wait() // how it ended is in its output
		close(p.done)
		end(errors.New("it ended"))
	}()
	if err := Poll(ctx, 10*time.Millisecond, ready); err != nil {
		p.Stop()
		return nil, fmt.Errorf("%s did not become ready: %w: %s", filepath.Base(program), err, p.lastOutput())
	}
	return p, nil
}

func (p *Process) lastOutput() string {
	b, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	if len(b) > logTail {
		b = b[len(b)-logTail:]
	}
	return string(bytes.TrimSpace(b))
}

// Stop signals the server to stop, waits, and kills it if it does not.
func (p *Process) Stop() {
	p.once.Do(func() {
		_ = p.cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-p.done:
			return
		case <-time.After(stopTimeout):
		}
		p.Kill()
	})
}

// Kill ends the server at once.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill()
	<-p.done
}

// ID of the process.
func (p *Process) ID() int { return p.cmd.Process.Pid }

func (p *Process) proc(name string) ([]byte, error) {
	return os.ReadFile("/proc/" + strconv.Itoa(p.ID()) + "/" + name)
}

// Usage returns the resources that a server has used so far.
type Usage struct {
	CPU      time.Duration // of all threads
	Resident uint64        // bytes of memory
	Written  uint64        // bytes that it caused to be written to a disk
}

var errNoProc = errors.New("this system does not tell what a process uses; run on Linux")

// Usage asks the system. Only Linux answers.
func (p *Process) Usage() (Usage, error) {
	var u Usage
	b, err := p.proc("stat")
	if err != nil {
		return u, errNoProc
	}
	// The name in brackets may hold anything; the numbers come after the last bracket, the pages of
	// memory the 22nd of them.
	f := bytes.Fields(b[bytes.LastIndexByte(b, ')')+1:])
	if len(f) < 22 {
		return u, errNoProc
	}
	pages, err := strconv.ParseUint(string(f[21]), 10, 64)
	if err != nil {
		return u, err
	}
	if u.CPU, err = processCPU(p.ID()); err != nil {
		return u, err
	}
	u.Resident = pages * uint64(os.Getpagesize())
	if b, err := p.proc("io"); err == nil {
		for line := range bytes.Lines(b) {
			if v, ok := bytes.CutPrefix(line, []byte("write_bytes: ")); ok {
				u.Written, _ = strconv.ParseUint(string(bytes.TrimSpace(v)), 10, 64)
			}
		}
	}
	return u, nil
}

// FreeAddress picks a loopback address for a server.
func FreeAddress() (string, error) {
	list, err := FreeAddresses(1)
	if err != nil {
		return "", err
	}
	return list[0], nil
}

// FreeAddresses picks several, all different. Neither an outgoing connection nor another program of
// this project takes one before its server listens there.
func FreeAddresses(n int) ([]string, error) {
	var list []string
	for range n {
		address, err := port.Free()
		if err != nil {
			return nil, err
		}
		list = append(list, address)
	}
	return list, nil
}

// Get reads a server's HTTP page and drops the body; any status but 200 is an error.
func Get(ctx context.Context, url string) error {
	_, err := loadgen.HTTPGet(ctx, url)
	return err
}

// CollectGo is a Process.Collect for servers in Go that show their profiles at an address.
func CollectGo(addr string) func(context.Context) error {
	return func(ctx context.Context) error { return Get(ctx, "http://"+addr+"/debug/pprof/heap?gc=1") }
}
