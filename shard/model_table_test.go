package shard

import (
	"strings"
	"testing"
)

// TestTables holds the rows of the specification's tables, one by one. All is about one semaphore,
// persistent with acquire, ephemeral with lock; each line is what is done, and what comes of it. An
// acquire has timeout 0 if nothing is said.
func TestTables(t *testing.T) {
	const one = `
		a create 3               => version 1; +created
		a acquire 2              => acquired 1; +owner
	`
	const two = one + `
		b acquire 2 for 1000     => queued 2
	`
	const three = two + `
		c acquire 1 for ever     => queued 3
	`
	for name, script := range map[string]string{
		"granted at once":             one,
		"small one does not overtake": three,
		"not at once": one + `
			b acquire 2              => not acquired
		`,
		"not at once behind a queue": two + `
			c acquire 1              => not acquired
		`,
		"exactly at the deadline": two + `
			later 1000               =>
		`,
		"behind the deadline": two + `
			later 1001               => b#1 not acquired
		`,
		"the head leaves, the next come": three + `
			later 1001               => b#1 not acquired; c#1 acquired 3; +owner
		`,
		"owner asks for more": one + `
			a acquire 3 for ever     => BAD_REQUEST
		`,
		"owner asks for the same": one + `
			a acquire 2              => acquired 1
		`,
		"the same with other data": one + `
			a acquire 2 data x       => acquired 1; +changed
		`,
		"owner asks for less": three + `
			a acquire 1              => acquired 1; b#1 acquired 2; +changed; +owner
		`,
		"waiter asks for more": two + `
			b acquire 3 for 1000     => BAD_REQUEST
		`,
		"and waits on": two + `
			b acquire 3 for 9000     => BAD_REQUEST
			later 1001               => b#1 not acquired
		`,
		"waiter asks for the same": two + `
			later 600                =>
			b acquire 2 for 1000     => b#1 ABORTED; queued 2
			later 1000               =>
			later 1                  => b#2 not acquired
		`,
		"waiter asks for less and fits": three + `
			b acquire 1              => b#1 ABORTED; acquired 2; +owner
		`,
		"less, and it is not the head": three + `
			c acquire 1 for 500      => c#1 ABORTED; queued 3
			later 501                => c#2 not acquired
		`,
		"waiter asks with timeout 0": three + `
			b acquire 2              => b#1 ABORTED; not acquired; c#1 acquired 3; +owner
		`,
		"waiter waits for ever now": two + `
			b acquire 2 for ever     => b#1 ABORTED; queued 2
			later 90000000           =>
		`,
		"release of an owner": three + `
			a release                => released; b#1 acquired 2; c#1 acquired 3; +removed; +owner; +owner
		`,
		"release of a waiter": three + `
			b release                => b#1 ABORTED; released; c#1 acquired 3; +owner
		`,
		"release of nothing": `
			a create 3               => version 1; +created
			b release                => ok
		`,
		"release of no semaphore": `
			b release                => ok
		`,
		"acquire of no semaphore": `
			a acquire 1              => NOT_FOUND
		`,
		"acquire above the limit": `
			a create 3               => version 1; +created
			a acquire 4              => BAD_REQUEST
		`,
		"acquire of 0": `
			a create 3               => version 1; +created
			a acquire 0              => BAD_REQUEST
		`,
		"of 0 on no semaphore": `
			a acquire 0              => BAD_REQUEST
		`,
		"timeout of a day": one + `
			b acquire 3 for 86400000 => queued 2
		`,
		"timeout of more": one + `
			b acquire 3 for 86400001 => BAD_REQUEST
		`,
		"timeout of nearly ever": one + `
			b acquire 3 for ever-1   => BAD_REQUEST
		`,
		"persistent as ephemeral": `
			a create 3               => version 1; +created
			a lock 1                 => PRECONDITION_FAILED
		`,
		"ephemeral as persistent": `
			a lock 1                 => acquired 1; +created; +owner
			a acquire 1              => PRECONDITION_FAILED
		`,
		"ephemeral goes with its last": `
			a lock all               => acquired 1; +created; +owner
			b lock all for 1000      => queued 2
			a release                => released; b#1 acquired 2; +removed; +owner
			b release                => released; +removed; +deleted
		`,
		"shared locks, then an exclusive": `
			a lock 1                 => acquired 1; +created; +owner
			b lock all for 1000      => queued 2
			c lock 1 for 1000        => queued 3
		`,
		"units do not overflow": `
			a lock all-1             => acquired 1; +created; +owner
			b lock 2                 => not acquired
			b lock 1                 => acquired 2; +owner
		`,
		"order id after delete and create": one + `
			a release                => released; +removed
			a delete                 => ok; +deleted
			a create 3               => version 2; +created
			a acquire 2              => acquired 2; +owner
		`,
		"version after delete and create": `
			a create 3               => version 1; +created
			b update x               => version 2; +data
			a delete                 => ok; +deleted
			a create 3               => version 3; +created
			b update y if 1          => PRECONDITION_FAILED
			b update y if 2          => PRECONDITION_FAILED
			b update y if 3          => version 4; +data
		`,
		"create twice": `
			a create 3               => version 1; +created
			b create 3               => ALREADY_EXISTS
		`,
		"create over an ephemeral": `
			a lock 1                 => acquired 1; +created; +owner
			a create all             => PRECONDITION_FAILED
		`,
		"create with limit 0": `
			a create 0               => BAD_REQUEST
		`,
		"update": `
			a create 3               => version 1; +created
			b update x               => version 2; +data
			b update x               => version 2
			b update y if 1          => PRECONDITION_FAILED
			b update y if 2          => version 3; +data
		`,
		"update of an ephemeral": `
			a lock 1                 => acquired 1; +created; +owner
			b update x               => version 2; +data
		`,
		"update of none": `
			b update x               => NOT_FOUND
		`,
		"resize up": three + `
			c resize 4               => ok; b#1 acquired 2; +limit; +owner
		`,
		"resize down": one + `
			b resize 1               => ok; +limit
			b acquire 1              => not acquired
		`,
		"down to below the head": two + `
			c resize 1               => ok; +limit
			a release                => released; +removed
			c delete                 => PRECONDITION_FAILED
			c resize 2               => ok; b#1 acquired 2; +limit; +owner
		`,
		"held above a lowered limit": one + `
			b resize 1               => ok; +limit
			a acquire 2              => acquired 1
			a acquire 2 data x       => acquired 1; +changed
			a acquire 3              => BAD_REQUEST
			b acquire 2 for ever     => BAD_REQUEST
			a acquire 1              => acquired 1; +changed
			a acquire 2              => BAD_REQUEST
		`,
		"waits above a lowered limit": two + `
			c resize 1               => ok; +limit
			b acquire 3 for ever     => BAD_REQUEST
			b acquire 2 for ever     => b#1 ABORTED; queued 2
			b acquire 2              => b#3 ABORTED; not acquired
			b acquire 2 for ever     => BAD_REQUEST
		`,
		"resize of an ephemeral": `
			a lock 1                 => acquired 1; +created; +owner
			b resize 1               => PRECONDITION_FAILED
		`,
		"delete of none": `
			a delete force           => NOT_FOUND
		`,
		"delete of an ephemeral": `
			a lock 1                 => acquired 1; +created; +owner
			b delete force           => PRECONDITION_FAILED
		`,
		"delete with owners": one + `
			b delete                 => PRECONDITION_FAILED
		`,
		"delete by force": three + `
			c delete force           => ok; b#1 ABORTED; c#1 ABORTED; a lost 1; +deleted
		`,
		"remote sessions queue as others do": one + `
			g acquire 2 for ever     => queued 2
			a release                => released; g#1 acquired 2; +removed; +owner
		`,
		"a remote session is gone": one + `
			g acquire 2 for ever     => queued 2
			g gone                   => ok
			g acquire 1              => SESSION_EXPIRED
		`,
		"sent again: granted": one + `
			a again 2 low 1          => acquired 1
		`,
		"sent again: queued": two + `
			b again 1 low 1          => queued 2
			b again 1 low 9          => queued 2
		`,
		"sent again: granted since": two + `
			a release                => released; b#1 acquired 2; +removed; +owner
			b again 1 low 2          => acquired 2
		`,
		"sent again: timed out since": two + `
			later 1001               => b#1 not acquired
			b again 1 low 1          => not acquired
			b again 1 low 2          => not acquired
		`,
		"sent again: taken away": one + `
			b delete force           => ok; a lost 1; +deleted
			a again 2 low 1          => ABORTED
		`,
	} {
		t.Run(name, func(t *testing.T) {
			r := newTableTest(t)
			for line := range strings.Lines(script) {
				do, want, ok := strings.Cut(strings.TrimSpace(line), "=>")
				if !ok {
					continue
				}
				if got := r.run(do); got != strings.TrimSpace(want) {
					t.Fatalf("%s: %s, want %s", do, got, want)
				}
			}
		})
	}
}
