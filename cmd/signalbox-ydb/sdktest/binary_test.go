package sdktest

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// startBinary runs signalbox-ydb until the test ends.
func startBinary(t testing.TB, binary, endpoints string) (address string, pid int) {
	t.Helper()
	p := exec.Command(binary, "--endpoints", endpoints, "--listen", "127.0.0.1:0")
	p.Stderr = os.Stderr
	out, err := p.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = p.Process.Signal(os.Interrupt)
		_, _ = io.Copy(io.Discard, out)
		if err := p.Wait(); err != nil {
			t.Errorf("signalbox-ydb ended with %v", err)
		}
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	// signalbox-ydb serves database /local on 127.0.0.1:2136, cluster ...
	_, rest, _ := strings.Cut(line, " on ")
	address, _, _ = strings.Cut(rest, ",")
	return address, p.Process.Pid
}
