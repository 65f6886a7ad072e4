package chaos

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/signalbox-dev/signalbox/server/servertest/form"
)

// TestFollowerReturns: an instance that leads little is stopped by SIGSTOP while tens of megabytes
// are written and hundreds of strict reads are made. When it continues, it is sent what it lacks,
// once: the others' memory hardly grows.
func TestFollowerReturns(t *testing.T) {
	form.SkipUntil(t, form.Full, "replica.TestReturningReplica has one process")
	t.Parallel()
	c := newCluster(t)
	c.startThree()
	c.followerReturns()
}

// returnMemory is how much the peak of an instance's memory may grow while a follower is away and
// returns.
const returnMemory = 200 << 20

// followerReturns stops a follower while the others work, has it continue, and waits until it is up
// to date.
func (c *cluster) followerReturns() {
	c.t.Helper()
	s := c.awaitReady("before a follower is stopped", c.names()...)
	leads := map[string]int{s.Meta.Leader: 1}
	for _, x := range s.Shards {
		leads[x.Master] += 2
	}
	away := c.names()[0]
	for _, name := range c.names() {
		if leads[name] < leads[away] {
			away = name
		}
	}
	var others []*instance
	var endpoints []string
	for _, name := range c.names() {
		if name != away {
			others = append(others, c.instances[name])
			endpoints = append(endpoints, c.instances[name].listen)
		}
	}
	before := make([]int, len(others))
	for i, in := range others {
		before[i] = peakMemory(c.t, in)
	}
	send(c.t, c.instances[away], syscall.SIGSTOP)
	errs := make(chan error, 2)
	for _, load := range [][]string{
		{"lock-pairs", "--data-size", "100000", "--operations", "400", "--callers", "8"},
		{"describe-strict", "--operations", "300", "--rate", "50", "--keys", "8"}, // each round of a read is a heartbeat
	} {
		args := append([]string{"load"}, load...)
		args = append(args, "--warm-up", "0", "--duration", "0", "--deadline", callLimit.String(), "--endpoints", strings.Join(endpoints, ","))
		go func() {
			out, err := inNetns(c.netns, c.bin, args...).CombinedOutput()
			if err != nil {
				err = fmt.Errorf("%s beside a follower that is away: %w\n%s", load[0], err, out)
			}
			errs <- err
		}()
	}
	for range cap(errs) {
		if err := <-errs; err != nil {
			c.t.Error(err)
		}
	}
	send(c.t, c.instances[away], syscall.SIGCONT)
	c.awaitReady("after a follower continued", c.names()...)
	for i, in := range others {
		after := peakMemory(c.t, in)
		c.t.Logf("%s: at most %d MiB before, %d MiB when the follower was back", in.dir, before[i]>>20, after>>20)
		if after-before[i] > returnMemory {
			c.t.Errorf("an instance took up to %d MiB before a follower was away, and %d MiB when it was back", before[i]>>20, after>>20)
		}
	}
}

// peakMemory is the most memory that an instance's process ever had, in bytes; 0: the system does
// not tell.
func peakMemory(t *testing.T, in *instance) (bytes int) {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", in.cmd.Process.Pid))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(b)) {
		if _, err := fmt.Sscanf(line, "VmHWM: %d kB", &bytes); err == nil {
			return bytes << 10
		}
	}
	t.Fatalf("no peak of memory in\n%s", b)
	return 0
}
