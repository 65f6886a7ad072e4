package main

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/signalbox-dev/signalbox/client/admin"
	"github.com/signalbox-dev/signalbox/cmd/signalbox/explain"
	"github.com/signalbox-dev/signalbox/cmd/signalbox/terminal"
)

const (
	// topLooks is how many semaphores, those with the oldest waits, are asked for deadlocks. Each
	// costs reads of the sessions that wait.
	topLooks = 4
	// topLookAfter is how old a wait is before it is suspicious.
	topLookAfter = 2 * time.Second
)

// topDeadlock is a deadlock that was read twice.
type topDeadlock struct {
	path     string
	names    []string // of the semaphores that its sessions wait for
	sessions []uint64
}

func (d *topDeadlock) String() string {
	names := make([]string, len(d.names))
	for i, name := range d.names {
		names[i] = terminal.Sanitize(name)
	}
	return fmt.Sprintf("deadlock in %s: %s: %d sessions wait for each other, and none of them can go on",
		terminal.Sanitize(d.path), explain.List(names), len(d.sessions))
}

func topDeadlockRow(d *topDeadlock) row {
	ids := make([]sessionID, len(d.sessions))
	for i, id := range d.sessions {
		ids[i] = sessionID(id)
	}
	return row{{"node", "", d.path}, {"names", "", d.names}, {"sessions", "", ids}}
}

// suspects are the semaphores with the oldest waits, the oldest first.
func suspects(lists *admin.Top) []admin.TopSemaphore {
	waits := slices.DeleteFunc(slices.Clone(lists.Semaphores), func(s admin.TopSemaphore) bool {
		return s.Waiters == 0 || s.OldestWait < topLookAfter
	})
	sortTop(waits, "wait")
	return waits[:min(len(waits), topLooks)]
}

// deadlocks looks for deadlocks at the oldest waits, as sem why does. What cannot be read is left
// out: the lists are there all the same.
func (t *topRun) deadlocks(ctx context.Context, of []admin.TopSemaphore) (found []topDeadlock) {
	c, err := t.inv.client()
	if err != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, topTimeout)
	defer cancel()
	looks := make([]*topDeadlock, len(of))
	var looking sync.WaitGroup
	for i, s := range of {
		looking.Go(func() {
			n, err := c.Node(ctx, s.Path)
			if err != nil {
				return
			}
			w, err := n.ExplainWait(ctx, s.Name, 0)
			if err != nil || w.Deadlock == nil || !w.Deadlock.Confirmed {
				return
			}
			d := &topDeadlock{path: s.Path, sessions: w.Deadlock.Sessions}
			for _, step := range w.Deadlock.Steps {
				if step.Name != "" {
					d.names = append(d.names, step.Name)
				}
			}
			slices.Sort(d.names)
			d.names = slices.Compact(d.names)
			looks[i] = d
		})
	}
	looking.Wait()
	for _, d := range looks {
		if d != nil && !slices.ContainsFunc(found, func(x topDeadlock) bool {
			return x.path == d.path && slices.Equal(x.sessions, d.sessions)
		}) {
			found = append(found, *d)
		}
	}
	return found
}
