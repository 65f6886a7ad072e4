package chaos

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/signalbox-dev/signalbox/shard/meta"
)

// mixedLoad is `signalbox load mixed` of one version.
type mixedLoad struct {
	cmd            *exec.Cmd
	output, errors bytes.Buffer
}

// startMixed starts the loads of both versions, which go on until stopMixed.
func (u *upgrading) startMixed() {
	u.t.Helper()
	for _, bin := range []string{u.former, u.newer} {
		limit := waitLimit.String()
		x := &mixedLoad{cmd: exec.Command(bin, "load", "mixed", "--rate", "40", "--callers", "8", "--duration", "24h",
			"--warm-up", "0s", "--deadline", limit, "--session-timeout", limit, "--timeout", limit, "--node", nodePath,
			"--endpoints", strings.Join(u.endpoints(), ","), "-o", "json")}
		x.cmd.Stdout, x.cmd.Stderr = &x.output, &x.errors
		if err := x.cmd.Start(); err != nil {
			u.t.Fatal(err)
		}
		u.t.Cleanup(func() {
			if x.cmd.ProcessState == nil {
				_ = x.cmd.Process.Kill()
				_ = x.cmd.Wait()
			}
		})
		u.mixed = append(u.mixed, x)
	}
}

// stopMixed ends the loads, in which nothing may have failed.
func (u *upgrading) stopMixed() {
	u.t.Helper()
	for i, x := range u.mixed {
		version := []meta.Version{u.now, u.next}[i]
		_ = x.cmd.Process.Signal(syscall.SIGTERM) // SIGINT may be ignored, as it is of a shell's background jobs
		_ = x.cmd.Wait()                          // with 1, as it was ended
		var r loadResult
		err := json.Unmarshal(x.output.Bytes(), &r)
		if err != nil || r.Operations == 0 || len(r.Errors) > 0 || len(r.Series) == 0 {
			u.t.Errorf("the load of version %s: %v\n%s\n%s", version, err, &x.output, &x.errors)
			continue
		}
		u.t.Logf("load of version %s: %s", version, &r)
	}
}

// run runs a command of either version on the cluster.
func (u *upgrading) run(bin string, args ...string) string {
	u.t.Helper()
	defer func(own string) { u.bin = own }(u.bin)
	u.bin = bin
	out, err := u.command(append(args, "--timeout", waitLimit.String())...)
	if err != nil {
		u.t.Fatalf("%q of %s: %v\n%s", args, filepath.Base(bin), err, out)
	}
	return out
}

// versionObjects is a document of a node, and of a configuration's data.
const versionObjects = `signalbox: 1
nodes:
  %s:
    semaphores: {jobs: {limit: 2}, turns: {policy: priority, history: 3}}
    configs: {moment: {data: %q}}
    limits: {api: {rate: 10}, api/a: {weight: 2}}
    rollouts: {api: {locations: [{name: one}, {name: two, delay: 5s}]}}
`

// commandLines has the command lines of both versions work on the cluster, whichever versions serve
// it: what one of them makes the other finds, and a session that one saves the other uses.
func (u *upgrading) commandLines(when string) {
	u.t.Helper()
	const path = "/command-lines"
	for _, x := range [][2]string{{u.former, u.newer}, {u.newer, u.former}} {
		maker, finder := x[0], x[1]
		file := filepath.Join(u.t.TempDir(), "objects.yaml")
		text := fmt.Sprintf(versionObjects, path, filepath.Base(maker)+" "+when)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			u.t.Fatal(err)
		}
		u.run(maker, "apply", "-f", file)
		if out := u.run(finder, "apply", "-f", file, "--dry-run"); out != "no difference\n" {
			u.t.Errorf("%s: %s finds a difference to what %s applied: %s", when, finder, maker, out)
		}
		session := filepath.Join(u.t.TempDir(), "session")
		u.run(maker, "sem", "acquire", "jobs", "--count", "2", "--node", path, "--session-file", session,
			"--session-timeout", "5m")
		u.run(finder, "sem", "release", "jobs", "--node", path, "--session-file", session)
	}
}
