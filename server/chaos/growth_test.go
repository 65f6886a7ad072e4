package chaos

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server/servertest/form"
)

// TestClusterGrows: three processes become six while 200 clients acquire, wait, count and watch.
// Then there are two replicasets with half of the 4,096 buckets each. No caller has seen an error,
// no token has gone back, no acknowledged step is missing.
func TestClusterGrows(t *testing.T) {
	form.SkipUntil(t, form.Long, "200 clients on six processes")
	c := newCluster(t)
	c.startThree()
	c.makeNode()
	first := c.endpoints()
	for k := range 20 {
		c.load("", loadSpec{Name: fmt.Sprintf("load-%d", k), Endpoints: first, Timeout: loadTimeout, Clients: 10,
			Pause: 500 * time.Millisecond})
	}
	c.awaitProgress("with three", now(), c.loads...)

	since := now()
	for _, name := range []string{"d", "e", "f"} {
		c.add(name)
		c.peers(name, "a", "b")
		c.instances[name].start()
	}
	names := c.names()
	s := c.await("two replicasets with half of the buckets each", func(s *protocol.ClusterStatus) string {
		var online []string
		for _, i := range s.Instances {
			if i.Current == "Online" && i.Target == "Online" {
				online = append(online, i.Name)
			}
		}
		slices.Sort(online)
		switch {
		case !slices.Equal(online, names):
			return fmt.Sprintf("%v are Online", online)
		case len(s.Moves) > 0 || len(s.Replicasets) != 2:
			return fmt.Sprintf("%d replicasets, %d moves", len(s.Replicasets), len(s.Moves))
		}
		for _, r := range s.Replicasets {
			if r.Buckets != 2048 {
				return fmt.Sprintf("%s has %d buckets", r.Name, r.Buckets)
			}
		}
		return ""
	})
	t.Logf("two replicasets and %d shards after %v", len(s.Shards), (now() - since).Round(time.Millisecond))
	c.awaitProgress("with six", now(), c.loads...)
	c.logLongestCall("growth", since)
	c.stopLoads(true)
	for _, name := range names {
		c.instances[name].stop()
	}
}
