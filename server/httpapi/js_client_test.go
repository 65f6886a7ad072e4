package httpapi

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"github.com/signalbox-dev/signalbox/server/servertest"
)

// needNode skips a test where the program is missing that runs the client of TypeScript.
func needNode(t *testing.T) {
	if _, err := exec.LookPath("node"); err != nil {
		t.Skip("node is missing, so the client of TypeScript is not tested: ", err)
	}
	_, _ = os.ReadFile("../../client/js/signalbox.js") // a cached result counts only for this one
}

// TestTypeScript: what is of the language and its platform: what callers give, signals, names, and
// the ends of programs.
func TestTypeScript(t *testing.T) {
	t.Parallel()
	needNode(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody := "http://" + l.Addr().String()
	_ = l.Close()
	command := func(t *testing.T, name string) (*site, *exec.Cmd) {
		s := openSite(t, servertest.Start(t, servertest.RealTime()))
		cmd := exec.CommandContext(t.Context(), "node", "testdata/cases.mjs", "../../../client/js", name, s.url, nobody)
		cmd.Stderr = os.Stderr
		return s, cmd
	}
	for _, name := range []string{"what a caller gives is checked", "one signal ends many calls",
		"names of all kinds, of all things", "what was not sent is sent to the next gateway",
		"a request that is never answered keeps the program alive, for its time"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if _, cmd := command(t, name); cmd.Run() != nil {
				t.Errorf("it ends with %v", cmd.ProcessState)
			}
		})
	}
	t.Run("a program that forgets a lease", func(t *testing.T) {
		s, cmd := command(t, "a program that forgets a lease")
		if out, err := cmd.Output(); err != nil || string(out) != "main ends\n" {
			t.Errorf("it ends with %v: %s", err, out)
		}
		if n := s.ask("GET", "/v1/locks/forgotten", "", "").number("num_owners"); n != 1 {
			t.Errorf("%d hold what it forgot; it is held until its ttl is over", n)
		}
	})
	t.Run("a program that is told to end", func(t *testing.T) {
		s, cmd := command(t, "a program that is told to end")
		out, err := cmd.StdoutPipe()
		if err == nil {
			err = cmd.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		if line, err := bufio.NewReader(out).ReadString('\n'); line != "holds\n" {
			t.Fatalf("it says %q: %v", line, err)
		}
		_ = cmd.Process.Signal(syscall.SIGTERM)
		if err := cmd.Wait(); cmd.ProcessState.ExitCode() != 143 {
			t.Errorf("it ends with %v", err)
		}
		if a := s.ask("GET", "/v1/locks/told", "", ""); a.doc["exists"] != false {
			t.Errorf("after its end: %s", a.body)
		}
	})
}

// TestTypeScriptModel: on virtual time, with a scripted cluster, the client does what a model says.
func TestTypeScriptModel(t *testing.T) {
	t.Parallel()
	needNode(t)
	seeds := fmt.Sprint(sized(6, 30, 1000))
	cmd := exec.CommandContext(t.Context(), "node", "testdata/virtual.mjs", "../../../client/js", "1", seeds)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
