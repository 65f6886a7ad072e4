package chaos

import (
	"fmt"
	"os"
	"syscall"
	"testing"
	"time"
)

// TestClusterUnderLoad: the instance that leads most is killed, one that leads is stopped, and all are restarted one after another, while clients work: none of
// them sees an error, or loses a lease, and the pauses that they see are logged.
func TestClusterUnderLoad(t *testing.T) {
	flags := [][]string{nil}
	if os.Getenv("SIGNALBOX_LONG") != "" {
		flags = append(flags, []string{"--offline-after", "500ms", "--raft-rtt", "20ms"})
	}
	for _, f := range flags {
		t.Run(fmt.Sprint(f), func(t *testing.T) { underLoad(t, f...) })
	}
}

func underLoad(t *testing.T, flags ...string) {
	c := newCluster(t, flags...)
	c.three()
	names := c.names()
	c.makeNode()
	for k := range 3 {
		c.load("", loadSpec{Name: fmt.Sprintf("load-%d", k), Timeout: loadTimeout})
	}
	c.carriedOn("at first", now(), c.loads...)
	c.measured("without faults", 0)

	s := c.settled("before a leader is killed", names...)
	since := now()
	victim := c.all[busiest(&s)]
	victim.kill()
	c.carriedOn("after a leader was killed", now(), c.loads...)
	c.measured("SIGKILL of a leader", since)
	since = now()
	victim.start()
	s = c.settled("after the killed one was started again", names...)
	c.carriedOn("after the killed one was started again", now(), c.loads...)
	c.measured("its return", since)

	since = now()
	victim = c.all[busiest(&s)]
	_ = victim.cmd.Process.Signal(syscall.SIGTERM)
	<-victim.ended
	t.Logf("SIGTERM: ended after %v", (now() - since).Round(time.Millisecond))
	if victim.err != nil {
		t.Errorf("it did not end well on SIGTERM: %v", victim.err)
	}
	c.carriedOn("after a leader was stopped", now(), c.loads...)
	c.measured("SIGTERM of a leader", since)
	victim.start()
	c.settled("after the stopped one was started again", names...)

	since = now()
	for _, name := range names {
		c.all[name].stop()
		c.all[name].start()
		c.settled("after the restart of "+name, names...)
	}
	c.carriedOn("after all were restarted one after another", now(), c.loads...)
	c.measured("rolling restart", since)
	c.stopLoads(true)
}

// loadTimeout is the timeout of sessions that must live: long, since the machine may be busy with other things.
const loadTimeout = 20 * time.Second
