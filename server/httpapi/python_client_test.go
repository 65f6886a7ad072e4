package httpapi

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/signalbox-dev/signalbox/server/servertest"
)

// TestForkedPython: a forked child holds nothing of its parent's and can acquire for itself, and a
// lease cannot be sent away.
func TestForkedPython(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("python3 is missing: ", err)
	}
	s := openSite(t, servertest.Start(t, servertest.RealTime()))
	d := drive(t, "python")
	d.do(command{"do": "connect", "as": "a", "addresses": []string{s.url}})
	d.do(command{"do": "lock", "with": "a", "as": "x", "name": "jobs"})
	a := d.do(command{"do": "forked", "lease": "x"})
	if a.Held || !a.Own || !strings.Contains(a.Cause, "acquire again") || !strings.Contains(a.Detail, "acquire again") {
		t.Errorf("the child says %+v", a)
	}
	if a := d.do(command{"do": "held", "lease": "x"}); !a.Held {
		t.Errorf("the parent says %+v", a)
	}
	if owners, _ := d.owners(s, "jobs"); owners != 1 {
		t.Errorf("after the child's end %d hold it", owners)
	}
	d.do(command{"do": "close", "with": "a"})
}

// TestPythonModel: what the client believes, renews, waits for and gives back is what a model allows,
// on virtual time, with random faults of network and gateways.
func TestPythonModel(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("python3 is missing: ", err)
	}
	const script, folder = "testdata/model.py", "../../client/python"
	for _, name := range []string{script, folder + "/signalbox/__init__.py"} {
		_, _ = os.ReadFile(name) // a cached result counts only for these
	}
	seeds := fmt.Sprint(sized(25, 200, 5000))
	cmd := exec.CommandContext(t.Context(), "python3", script, folder, "1", seeds)
	cmd.Env = append(os.Environ(), "PYTHONDONTWRITEBYTECODE=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("python3 %s %s SEED 1 plays one of these alone: %v\n%s", script, folder, err, out)
	}
}

// TestPythonEnds: however a program ends that can still do something, it leaves nothing held and
// nobody waiting, and no thread keeps it alive.
func TestPythonEnds(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("python3 is missing: ", err)
	}
	// The client gives up at the end of a program when no gateway answers for 0.9 s, as one on a busy
	// machine may not: its clock runs a hundred times slower here.
	const begin = `import asyncio, signal, sys, threading, time, signalbox
signalbox._now = lambda: time.monotonic() / 100
import signalbox.aio
U = sys.argv[1]
sb = signalbox.connect(U, timeout=120)
`
	for name, program := range map[string]struct {
		signal os.Signal // once it is ready
		lines  string
	}{
		"at the end of its lines": {nil, `
lease = sb.lock("held", ttl=300)
print("ready")`},
		"by sys.exit, with many": {nil, `
leases = [sb.lock("held %d" % i, ttl=300) for i in range(50)]
print("ready")
sys.exit(3)`},
		"by an exception": {nil, `
with sb.lock("held", ttl=300):
    print("ready")
    raise RuntimeError("on purpose")`},
		"while a thread waits": {nil, `
threading.Thread(target=lambda: sb.lock("taken", ttl=300, wait=200), daemon=True).start()
while not sb.why("taken"):
    pass
print("ready")`},
		"by SIGTERM": {syscall.SIGTERM, `
signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
with sb.lock("held", ttl=300) as lease:
    print("ready", flush=True)
    lease.lost.wait()`},
		"by Ctrl-C in a wait": {syscall.SIGINT, `
threading.Timer(0, lambda: print("ready", flush=True)).start()
sb.lock("taken", ttl=300, wait=200)`},
		"at the end of a loop": {nil, `
async def main():
    global ab, lease
    ab = signalbox.aio.connect(U)
    lease = await ab.lock("held", ttl=300)
asyncio.run(main())
print("ready")`},
		"at the end of a loop, which forgets": {nil, `
async def main():
    await signalbox.aio.connect(U).lock("held", ttl=300)
asyncio.run(main())
print("ready")`},
		"at the end of a loop whose task is cancelled": {nil, `
async def main():
    await signalbox.aio.connect(U).lock("taken", ttl=300, wait=200)
async def limited():
    try:
        await asyncio.wait_for(main(), 0.2)
    except asyncio.TimeoutError:
        print("ready")
asyncio.run(limited())`},
		"by Ctrl-C in a loop": {syscall.SIGINT, `
async def main():
    threading.Timer(0, lambda: print("ready", flush=True)).start()
    await signalbox.aio.connect(U).lock("taken", ttl=300, wait=200)
asyncio.run(main())`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := openSite(t, servertest.Start(t, servertest.RealTime()))
			s.ask("POST", "/v1/locks/taken?ttl=5m", "the-holder-of-it", "").wants(200)
			cmd := exec.CommandContext(t.Context(), "python3", "-c", begin+program.lines, s.url)
			cmd.Env = append(os.Environ(), "PYTHONDONTWRITEBYTECODE=1", "PYTHONPATH=../../client/python")
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			var says strings.Builder
			cmd.Stderr = &says
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			lines := bufio.NewReader(out)
			if line, err := lines.ReadString('\n'); line != "ready\n" {
				t.Errorf("it says %q: %v", line, err)
			}
			if program.signal != nil {
				if err := cmd.Process.Signal(program.signal); err != nil {
					t.Error(err)
				}
			}
			_, _ = io.Copy(io.Discard, lines)
			err = cmd.Wait()
			until(t, "nothing is left", func() bool {
				a := s.ask("GET", "/v1/locks?prefix=held", "", "").wants(200)
				waiting := s.ask("GET", "/v1/locks/taken", "", "").wants(200)
				return len(a.doc["locks"].([]any)) == 0 && waiting.number("num_waiters") == 0
			})
			if t.Failed() {
				t.Logf("it ended with %v, and said\n%s", err, says.String())
			}
		})
	}
}
