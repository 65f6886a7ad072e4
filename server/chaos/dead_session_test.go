package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/server/servertest/form"
)

// holderTimeout is the timeout of a session whose client is killed.
const holderTimeout = 2 * time.Second

// TestDeadSessionsUnderChanges: a client that holds a lock dies, and leaders change again and
// again. A waiter gets the lock while they do, and no sooner than the session may end. How long it
// took is logged: server/PROMISES.md has what adds up to it.
func TestDeadSessionsUnderChanges(t *testing.T) {
	form.SkipUntil(t, form.Long, "leaders change for minutes")
	const path, runs = "/dead", 5
	for _, kind := range []struct {
		name   string
		death  syscall.Signal // SIGSTOP: nothing reports that the client is gone
		every  time.Duration
		change func(c *cluster, n int) bool
	}{
		{"no change", syscall.SIGKILL, time.Second, func(*cluster, int) bool { return true }},
		{"the instance that leads most killed and started again each 8 s", syscall.SIGKILL, 8 * time.Second, killBusiest},
		{"the same, and the client is silent", syscall.SIGSTOP, 8 * time.Second, killBusiest},
		{"all shards transferred each 3 s, and the client is silent", syscall.SIGSTOP, 3 * time.Second, transferAllShards},
	} {
		t.Run(kind.name, func(t *testing.T) {
			c := newCluster(t)
			c.startThree()
			if _, err := c.command("node", "create", path, "--timeout", waitLimit.String()); err != nil { // with the defaults of a node
				t.Fatal(err)
			}
			w, err := client.Open(t.Context(), client.Config{Endpoints: c.endpoints()})
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = w.Close() }()
			s, err := w.Session(t.Context(), path, client.Timeout(time.Minute))
			if err != nil {
				t.Fatal(err)
			}
			changes, lost := 0, 0
			var took []time.Duration
			for run := 0; len(took) < runs; run++ {
				c.awaitReady("before a client dies", c.names()...)
				holder := startActor(t, "", "holder", fmt.Sprintf("lock-%d",
					run), fmt.Sprintf("%s=holder,lock-%d,%s,%s,%s", roleEnv, run, c.endpoints()[run%3], path,
					holderTimeout))
				t.Cleanup(func() { _ = holder.cmd.Process.Kill(); <-holder.ended; _ = holder.cmd.Wait() })
				var next time.Duration
				after, ok := measureRelease(t, holder, kind.death, s, func(died time.Duration) {
					if next == 0 {
						next = died + rand.N(holderTimeout/2) // the first one comes while the session lives
					}
					if at := now(); at >= next {
						if kind.change(c, changes) {
							changes++
						}
						next = max(next+kind.every, at)
					}
				})
				if !ok {
					if lost++; lost > 2*runs {
						t.Fatalf("%d clients lost their sessions of %v while they lived: the machine is too busy for this",
							lost, holderTimeout)
					}
					continue
				}
				took = append(took, after)
				if least := holderTimeout * 5 / 8; after < least { // a ping each quarter of the timeout, and half of that late at most
					t.Errorf("run %d: granted %v after the client died; its session lives for %v at least", run, after, least)
				}
			}
			slices.Sort(took)
			t.Logf("%d changes; the lock was granted after %v", changes, took)
			if changes < runs {
				t.Errorf("leaders changed %d times only: the test has lost its way", changes)
			}
		})
	}
}

// measureRelease ends a client that holds a lock, and measures how long it takes until a waiter has
// the lock. meanwhile is called all the time between. False: the session was over before its client
// died.
func measureRelease(
	t *testing.T, holder *actor, death syscall.Signal, s *client.Session, meanwhile func(died time.Duration),
) (after time.Duration, ok bool) {
	t.Helper()
	over := func() bool {
		_, expired := holder.has("expired")
		_, failed := holder.has("failed")
		return expired || failed
	}
	holder.until(t, "the holder to have the lock", func() bool {
		_, ready := holder.has("ready")
		return ready || over()
	})
	if over() {
		r, _ := holder.has("failed")
		t.Logf("%s was not held: %s", holder.name, r.Text)
		return 0, false
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var at time.Duration // of the grant; after granted
	granted := make(chan error, 1)
	queued := make(chan struct{}, 1)
	go func() {
		lease, err := s.Acquire(ctx, holder.name, client.Exclusive(), client.OnQueued(func(uint64) {
			select {
			case queued <- struct{}{}:
			default: // reported again
			}
		}))
		at = now()
		if err == nil {
			err = lease.Release(ctx)
		}
		granted <- err
	}()
	select {
	case <-queued:
	case err := <-granted:
		t.Logf("%s is granted at once: %v", holder.name, err)
		return 0, false
	}
	if over() {
		return 0, false
	}
	_ = holder.cmd.Process.Signal(death)
	for died := now(); ; {
		meanwhile(died)
		if now() > died+waitLimit {
			t.Fatalf("%s of a dead client is not free after %v, in which leaders changed all the time", holder.name, waitLimit)
		}
		select {
		case err := <-granted:
			if err != nil {
				t.Fatal(err)
			}
			return at - died, at > died
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// killBusiest kills the instance that leads most, and starts it again.
func killBusiest(c *cluster, _ int) bool {
	s, err := c.status()
	if err != nil || busiest(&s) == "" {
		return false
	}
	restart(c.instances[busiest(&s)])
	return true
}

// transferAllShards has the leader of each shard transfer it to another instance. False: none did.
func transferAllShards(c *cluster, n int) (did bool) {
	s, err := c.status()
	if err != nil {
		return false
	}
	for _, x := range s.Shards {
		var others []string
		for _, o := range x.Replicas {
			if o.Instance != x.Master {
				others = append(others, o.Instance)
			}
		}
		if len(others) == 0 {
			continue
		}
		// refused while another is under way
		_, err := c.command("cluster", "transfer", strconv.FormatUint(x.ID, 10), others[n%len(others)], "--timeout", "5s")
		did = did || err == nil
	}
	return did
}
