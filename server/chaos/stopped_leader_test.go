package chaos

import (
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/server/servertest/form"
)

// rarely is a session timeout whose keep-alives are minutes apart. A client that needed keep-alives
// to notice a hanging instance would outlast the test.
const rarely = 25 * time.Minute

// TestLeaderStopped: the instance that leads most is stopped by SIGSTOP, so that its connections
// stay and say nothing. Clients go on at the leaders that the others elect, long before they could
// miss a keep-alive, and nothing is done twice.
func TestLeaderStopped(t *testing.T) {
	form.SkipUntil(t, form.Full, "TestClusterUnderLoad kills a leader")
	t.Parallel()
	c := newCluster(t)
	c.startThree()
	names := c.names()
	c.makeNode()
	for _, name := range []string{"one", "two"} {
		c.load("", loadSpec{Name: name, Timeout: rarely, Clients: 2})
	}
	// Knows one instance, to which it has its only connection at first.
	s := c.awaitReady("before a leader is stopped", names...)
	victim := c.instances[busiest(&s)]
	c.load("", loadSpec{Name: "lone", Timeout: rarely, Endpoints: []string{victim.listen}})
	c.awaitProgress("at first", now(), c.loads...)
	since := now()
	send(t, victim, syscall.SIGSTOP)
	c.awaitProgress("while a leader is stopped", now(), c.loads...)
	c.logLongestCall("SIGSTOP of a leader", since)
	send(t, victim, syscall.SIGCONT)
	c.awaitProgress("after it was continued", now(), c.loads...)
	c.awaitReady("after it was continued", names...)
	c.stopLoads(true)
}

func send(t *testing.T, in *instance, s syscall.Signal) {
	t.Helper()
	if err := in.cmd.Process.Signal(s); err != nil {
		t.Fatal(err)
	}
}

// TestLeaderCutOffFromAll: all packets from and to the instance that leads most are dropped.
func TestLeaderCutOffFromAll(t *testing.T) {
	form.SkipUntil(t, form.Full, "TestClusterPartition cuts a leader off")
	t.Parallel()
	n, c, names := threeHosts(t, clientsHost+1)
	c.netns = n.hosts[clientsHost]
	c.load(c.netns, loadSpec{Name: "one", Timeout: rarely, Clients: 2})
	s := c.awaitReady("before the cut", names...)
	lone := slices.Index(names, busiest(&s))
	c.awaitProgress("at first", now(), c.loads...)
	since := now()
	for k := range names {
		if k != lone {
			n.part(lone, k)
		}
	}
	n.part(lone, clientsHost)
	c.awaitProgress("while the leader is cut off", now(), c.loads...)
	c.logLongestCall("the leader cut off from everybody", since)
	n.healAll()
	c.awaitReady("after the cut was healed", names...)
	c.awaitProgress("after the cut was healed", now(), c.loads...)
	c.stopLoads(true)
}
