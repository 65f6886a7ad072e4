package client

import (
	"context"

	"github.com/signalbox-dev/signalbox/protocol"
)

// checkElection refuses to campaign for a name whose owners hold single units: it would wait until
// the last member of a service is gone. It also refuses an election by priority. Errors:
// ErrPreconditionFailed.
func checkElection(ctx context.Context, n *Node, name string) error {
	sem, err := semaphoreOf(ctx, n, name)
	switch {
	case err != nil || sem == nil:
		return err
	case isPriorityElection(sem):
		return withOp("campaign", name, protocol.Errorf(protocol.StatusPreconditionFailed,
			"the name is an election by priority; campaign with a priority, or give the election a name of its own"))
	case sem.Limit != Max || sem.Used == 0 || isWhole(sem):
		return nil
	}
	return withOp("campaign", name, protocol.Errorf(protocol.StatusPreconditionFailed,
		"the name is a service or a shared lock, sessions that hold units of it: %d; give the election a name of its own",
		sem.NumOwners))
}

// checkService refuses to register under a name that is held whole: it would wait until the leader
// resigns. The same holds for an election by priority, led or not. Errors: ErrPreconditionFailed.
func checkService(ctx context.Context, n *Node, name string) error {
	sem, err := semaphoreOf(ctx, n, name)
	switch {
	case err != nil || sem == nil:
		return err
	case isPriorityElection(sem):
		return withOp("register", name, protocol.Errorf(protocol.StatusPreconditionFailed,
			"the name is an election by priority; give the service a name of its own"))
	case isWhole(sem):
		return withOp("register", name, protocol.Errorf(protocol.StatusPreconditionFailed,
			"the name is an election or a lock: one session holds it whole; give the service a name of its own"))
	}
	return nil
}

// semaphoreOf reads the semaphore that recipes share. It returns nil if it does not exist.
func semaphoreOf(ctx context.Context, n *Node, name string) (*Semaphore, error) {
	sem, err := n.Describe(ctx, name, ReadConsistency(Strict))
	if isNotFound(err) {
		return nil, nil // what follows says it if the node is gone
	}
	if err != nil {
		return nil, err
	}
	return sem, nil
}

// isWhole reports whether one session holds all units, of the limit of elections and locks.
func isWhole(sem *Semaphore) bool { return sem.NumOwners == 1 && sem.Used == Max }

// isPriorityElection reports whether a semaphore is that of an election by priority.
func isPriorityElection(sem *Semaphore) bool {
	o := sem.Config
	return !sem.Ephemeral && sem.Limit == 1 && o != nil && o.Policy == PolicyPriority && o.Preempt == PreemptLower
}
