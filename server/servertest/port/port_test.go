package port

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
)

// TestFree: addresses differ, can be listened on, and again after that.
func TestFree(t *testing.T) {
	seen := map[string]bool{}
	for range 50 {
		a, err := Free()
		if err != nil {
			t.Fatal(err)
		}
		if seen[a] {
			t.Fatalf("%s was given twice", a)
		}
		seen[a] = true
		if p := netip.MustParseAddrPort(a).Port(); runtime.GOOS == "linux" && int(p) < firstEphemeral() && lock(int(p)) {
			t.Errorf("another process may be given %s too", a)
		}
		for range 2 {
			l, err := net.Listen("tcp", a)
			if err != nil {
				t.Fatal(err)
			}
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// TestRow: each of the ports in a row is taken, and can be listened on.
func TestRow(t *testing.T) {
	first, err := Row(9)
	if err != nil {
		t.Fatal(err)
	}
	for p := first; p < first+9; p++ {
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", p))
		if err != nil {
			t.Fatal(err)
		}
		_ = l.Close()
		if take(p) {
			t.Errorf("port %d is given twice", p)
		}
	}
	busy, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer busy.Close()
	if take(busy.Addr().(*net.TCPAddr).Port) {
		t.Errorf("%s is given, and something listens there", busy.Addr())
	}
}

// TestFreeWhileProcessesStart: a process that is being started keeps no address that is given.
func TestFreeWhileProcessesStart(t *testing.T) {
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var starting sync.WaitGroup
	defer starting.Wait()
	var over atomic.Bool
	defer over.Store(true)
	for range 4 {
		starting.Go(func() {
			for !over.Load() {
				if err := exec.Command(program, "-test.run=^$").Run(); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	for range 200 {
		a, err := Free()
		if err != nil {
			t.Fatal(err)
		}
		l, err := net.Listen("tcp", a)
		if err != nil {
			t.Fatal(err)
		}
		_ = l.Close()
	}
}
