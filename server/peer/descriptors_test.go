package peer

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/server/servertest/await"
)

const fewDescriptorsEnv = "SIGNALBOX_MESH_FEW_FILES"

// acceptWithFewDescriptors is a process of its own: a transport that may open few descriptors. It
// says its address, then that it could not accept a connection, and lives until its input ends.
func acceptWithFewDescriptors() int {
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: 40, Max: 40}); err != nil {
		fmt.Println(err)
		return 1
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Println(err)
		return 1
	}
	m, err := New(Config{
		Advertise: l.Addr().String(), Network: opened{TCP(), l.(*net.TCPListener)}, Tokens: [][]byte{[]byte("secret")}, Logger: quietLog,
		Limits: Limits{Handshakes: 1000, HandshakesPerHost: 1000, HandshakeTimeout: patience},
	})
	if err == nil {
		m.HandleCall(echo, func(context.Context, string, []byte) ([]byte, error) { return nil, nil })
		err = m.Start()
	}
	if err != nil {
		fmt.Println(err)
		return 1
	}
	fmt.Println(m.Address())
	go func() {
		for m.Stats().AcceptErrors.Load() == 0 {
			time.Sleep(time.Millisecond) // nothing tells of it
		}
		fmt.Println("no descriptors")
	}()
	_, _ = io.Copy(io.Discard, os.Stdin)
	_ = m.Close()
	return 0
}

// TestOutOfDescriptors: a process that has no descriptors left accepts again once it has.
func TestOutOfDescriptors(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, "-test.run=^$")
	cmd.Env = append(os.Environ(), fewDescriptorsEnv+"=1")
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = stdin.Close()
		if err := cmd.Wait(); err != nil {
			t.Errorf("the process ended with %v", err)
		}
	})
	lines := bufio.NewReader(stdout)
	said := func() string {
		line, err := lines.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(line)
	}
	address := said()

	// More connections than the process has descriptors. The kernel completes them all, and the
	// process takes what it can.
	var silent []net.Conn
	for range 100 {
		nc, err := TCP().Dial(testContext(t), address)
		if err != nil {
			t.Fatal(err)
		}
		defer nc.Close()
		silent = append(silent, nc)
	}
	if got := said(); got != "no descriptors" {
		t.Fatal(got)
	}
	a := startTransport(t, tcpConfig(t), nil)
	short, cancel := context.WithTimeout(testContext(t), 100*time.Millisecond)
	defer cancel()
	if got, err := a.Call(short, address, echo, nil); err == nil {
		t.Errorf("a process without descriptors answers %s", got)
	}
	for _, nc := range silent {
		_ = nc.Close()
	}
	await.True(t, "the process to answer again", func() bool {
		ctx, cancel := context.WithTimeout(testContext(t), 5*time.Second)
		defer cancel()
		_, err := a.Call(ctx, address, echo, nil)
		return err == nil
	})
}
