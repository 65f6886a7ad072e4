package chaos

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/signalbox-dev/signalbox/server/servertest/await"
	"github.com/signalbox-dev/signalbox/server/servertest/form"
)

// slotJob is a job that says which slot it has, with its token: when it begins, and when it ends.
const slotJob = `echo $SIGNALBOX_TOKEN >>"$DIR/slot-$SIGNALBOX_SLOT"
sleep 0.5
echo $SIGNALBOX_TOKEN >>"$DIR/slot-$SIGNALBOX_SLOT"`

// slotJobs runs jobs, one after the other, until the file done is there.
const slotJobs = `until [ -e "$DIR/done" ]; do
	"$BIN" sem acquire gpu --timeout 90s --session-timeout 60s -- sh -c "$JOB" || echo "$?" >>"$DIR/codes"
done`

// killedJob is a job that is killed while it has its slot. On a very slow machine its session, which is
// shorter than the others', may end before.
const killedJob = `until [ -e "$RAN" ]; do
	"$BIN" sem acquire gpu --timeout 90s --session-timeout 30s -- \
		sh -c 'echo $SIGNALBOX_TOKEN >>"$DIR/slot-$SIGNALBOX_SLOT"; touch "$RAN"; exec sleep 1000'
done`

// TestSlotsUnderKills: 40 processes share 8 slots, while holders and leaders are killed. What is
// behind a slot sees tokens that never go back, so one holder at a time.
func TestSlotsUnderKills(t *testing.T) {
	form.SkipUntil(t, form.Long, "40 processes under kills for half a minute")
	t.Parallel()
	const slots, loops, victims = 8, 34, 6
	c := newCluster(t)
	c.startThree()
	names := c.names()
	c.makeNode()
	if _, err := c.command("sem", "create", "gpu", "--slots", strconv.Itoa(slots), "--node", nodePath); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	env := append(os.Environ(), "BIN="+c.bin, "DIR="+dir, "JOB="+slotJob, "SIGNALBOX_NODE="+nodePath,
		"SIGNALBOX_ENDPOINTS="+strings.Join(c.endpoints(), ","))
	run := func(script string, more ...string) *exec.Cmd {
		cmd := exec.Command("sh", "-c", script)
		cmd.Env = append(env, more...)
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
			_ = cmd.Wait()
		})
		return cmd
	}
	// grants are the tokens by slot, each as often as it was written.
	grants := func() (list [slots][]uint64, n int) {
		for k := range list {
			eachLine(t, filepath.Join(dir, fmt.Sprintf("slot-%d", k)), func(line string) error {
				token, err := strconv.ParseUint(strings.TrimSpace(line), 10, 64)
				list[k], n = append(list[k], token), n+1
				return err
			})
		}
		return list, n
	}
	progress := func(what string) {
		t.Helper()
		_, before := grants()
		await.True(t, "jobs to go on "+what, func() bool { _, n := grants(); return n > before+2*slots })
	}

	jobs := make([]*exec.Cmd, loops)
	for i := range jobs {
		jobs[i] = run(slotJobs)
	}
	progress("at first")
	ran := make([]string, victims)
	killed := make([]*exec.Cmd, victims)
	for i := range killed {
		ran[i] = filepath.Join(dir, fmt.Sprintf("victim-%d", i))
		killed[i] = run(killedJob, "RAN="+ran[i])
	}
	kill := func(i int) {
		t.Helper()
		await.True(t, "a job that is to be killed", func() bool { _, err := os.Stat(ran[i]); return err == nil })
		_ = syscall.Kill(-killed[i].Process.Pid, syscall.SIGKILL)
	}
	for i := range 2 {
		kill(3 * i)
		s := c.awaitReady("before a leader is killed", names...)
		victim := c.instances[busiest(&s)]
		victim.kill()
		kill(3*i + 1)
		progress("without a leader")
		victim.start()
		kill(3*i + 2)
	}
	progress("after all kills")
	if err := os.WriteFile(filepath.Join(dir, "done"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, cmd := range jobs {
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	}
	if codes, err := os.ReadFile(filepath.Join(dir, "codes")); err == nil {
		t.Errorf("jobs ended with the codes %q", codes)
	}

	text, err := c.command("sem", "describe", "gpu", "--strict", "--node", nodePath, "-o", "json", "--timeout", waitLimit.String())
	if err != nil {
		t.Fatal(err)
	}
	var now struct {
		Slots []struct {
			Slot  int `json:",string"`
			Token uint64
		}
	}
	if err := json.Unmarshal([]byte(text), &now); err != nil || len(now.Slots) != slots {
		t.Fatalf("%v: %s", err, text)
	}
	var newest [slots]uint64
	for _, x := range now.Slots {
		newest[x.Slot] = x.Token
	}
	list, n := grants()
	for k, tokens := range list {
		last := uint64(0)
		for _, token := range tokens {
			if token < last {
				t.Errorf("slot %d: token %d after %d", k, token, last)
			}
			last = token
		}
		if newest[k] < last || last == 0 {
			t.Errorf("slot %d: its last token is %d, and jobs had %d", k, newest[k], last)
		}
	}
	t.Logf("%d slots were used %d times", slots, n/2)
}
