package chaos

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/server/servertest/form"
)

// TestClusterUnderLoad kills the instance that leads most, stops one that leads, and restarts all
// one after another, while clients work. No client sees an error or loses a lease. The pauses that
// they see are logged.
func TestClusterUnderLoad(t *testing.T) {
	t.Parallel()
	flags := [][]string{nil}
	if form.Is(form.Long) {
		flags = append(flags, []string{"--offline-after", "500ms", "--raft-rtt", "20ms"})
	}
	for _, f := range flags {
		t.Run(fmt.Sprint(f), func(t *testing.T) { underLoad(t, f...) })
	}
}

func underLoad(t *testing.T, flags ...string) {
	c := newCluster(t, flags...)
	c.startThree()
	names := c.names()
	c.makeNode()
	for k := range 3 {
		c.load("", loadSpec{Name: fmt.Sprintf("load-%d", k), Timeout: loadTimeout})
	}
	c.awaitProgress("at first", now(), c.loads...)
	c.logLongestCall("without faults", 0)

	s := c.awaitReady("before a leader is killed", names...)
	since := now()
	victim := c.instances[busiest(&s)]
	victim.kill()
	c.awaitProgress("after a leader was killed", now(), c.loads...)
	c.logLongestCall("SIGKILL of a leader", since)
	since = now()
	victim.start()
	s = c.awaitReady("after the killed one was started again", names...)
	c.awaitProgress("after the killed one was started again", now(), c.loads...)
	c.logLongestCall("its return", since)

	since = now()
	victim = c.instances[busiest(&s)]
	_ = victim.cmd.Process.Signal(syscall.SIGTERM)
	<-victim.ended
	t.Logf("SIGTERM: ended after %v", (now() - since).Round(time.Millisecond))
	if victim.err != nil {
		t.Errorf("it did not end well on SIGTERM: %v", victim.err)
	}
	c.awaitProgress("after a leader was stopped", now(), c.loads...)
	c.logLongestCall("SIGTERM of a leader", since)
	victim.start()
	c.awaitReady("after the stopped one was started again", names...)

	since = now()
	for _, name := range names {
		c.instances[name].stop()
		c.instances[name].start()
		c.awaitReady("after the restart of "+name, names...)
	}
	c.awaitProgress("after all were restarted one after another", now(), c.loads...)
	c.logLongestCall("rolling restart", since)
	c.stopLoads(true)
}

// loadTimeout is the timeout of sessions that must live: long, since the machine may be busy with
// other things.
const loadTimeout = 20 * time.Second
