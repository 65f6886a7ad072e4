package integration

import (
	"bufio"
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server"
	"github.com/signalbox-dev/signalbox/server/servertest/await"
	"github.com/signalbox-dev/signalbox/server/servertest/form"
)

// fewFilesEnv makes the test binary a server with a low limit on open files.
const fewFilesEnv = "SIGNALBOX_TEST_FEW_FILES"

// serveWithFewFiles is the other process of TestFewFiles.
func serveWithFewFiles() int {
	n, _ := strconv.ParseUint(os.Getenv(fewFilesEnv), 10, 64)
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: n, Max: n}); err != nil {
		fmt.Println("error", err)
		return 1
	}
	s, err := startServer(context.Background(), server.Config{
		Listen: "127.0.0.1:0", Admin: server.Off, Shards: 2, Buckets: 16, Memory: true, RTT: 5 * time.Millisecond,
		Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		fmt.Println("error", err)
		return 1
	}
	fmt.Println("serving", s.Addr())
	_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
	if err := s.Err(); err != nil {
		fmt.Println("error", err)
		return 1
	}
	if err := s.Close(); err != nil {
		fmt.Println("error", err)
		return 1
	}
	return 0
}

// TestFewFiles: twice as many connections as there are open files. Those above the bound are turned
// away, the others are served, and when they go new ones come in.
func TestFewFiles(t *testing.T) {
	form.SkipUntil(t, form.Full, "hundreds of connections to a process of its own")
	t.Parallel()
	const limit = 256
	cmd := exec.Command(os.Args[0], "-test.run=^$")
	cmd.Env = append(os.Environ(), fewFilesEnv+"="+strconv.Itoa(limit))
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	var addr string
	const bound = limit / 2 // the rest is for the log
	for lines.Scan() {
		if f := strings.Fields(lines.Text()); len(f) == 2 && f[0] == "serving" {
			addr = f[1]
			break
		} else if len(f) > 0 && f[0] == "error" {
			t.Fatal(lines.Text())
		}
	}
	// crowd connects twice as often as there are files.
	workload := func() (served []*raw, turned int) {
		for range 2 * limit {
			nc, err := net.Dial("tcp", addr)
			if err != nil {
				t.Fatal(err)
			}
			c := &raw{t: t, nc: nc}
			_ = c.writeErr(hello(protocol.Magic, protocol.Version))
			h, err := c.next()
			switch {
			case err == nil && h.Kind == protocol.KindHello|protocol.KindReply:
				served = append(served, c)
			default: // a goodbye, or a reset because the hello was not read
				turned++
				_ = nc.Close()
			}
		}
		return served, turned
	}
	for range 2 {
		served, turned := workload()
		if len(served) != bound || turned != 2*limit-bound {
			t.Fatalf("%d were served and %d turned away; the bound is %d", len(served), turned, bound)
		}
		for _, c := range served {
			c.ping()
		}
		for _, c := range served {
			_ = c.nc.Close()
		}
		await.True(t, "all places to be free", func() bool { return freePlaces(t, addr, bound) })
	}
	_ = in.Close()
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
}

// freePlaces reports whether n connections are let in at a time.
func freePlaces(t *testing.T, addr string, n int) bool {
	for range n {
		nc, err := net.Dial("tcp", addr)
		if err != nil {
			return false
		}
		defer nc.Close()
		c := &raw{t: t, nc: nc}
		_ = c.writeErr(hello(protocol.Magic, protocol.Version))
		h, err := c.next()
		if err != nil || h.Kind != protocol.KindHello|protocol.KindReply {
			return false
		}
	}
	return true
}
