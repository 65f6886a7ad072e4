package client

import (
	"context"

	"github.com/signalbox-dev/signalbox/protocol"
)

// checkElection refuses to campaign for a name whose owners hold single units: it would wait until
// the last member of a service is gone. Errors: PreconditionFailed.
func checkElection(ctx context.Context, n *Node, name string) error {
	sem, err := ownersOf(ctx, n, name)
	if err != nil || sem == nil || sem.Used == 0 || isWhole(sem) {
		return err
	}
	return withOp("campaign", name, protocol.Errorf(protocol.StatusPreconditionFailed,
		"the name is a service or a shared lock, sessions that hold units of it: %d; give the election a name of its own", sem.NumOwners))
}

// checkService refuses to register under a name that is held whole: it would wait until the leader
// resigns. Errors: PreconditionFailed.
func checkService(ctx context.Context, n *Node, name string) error {
	sem, err := ownersOf(ctx, n, name)
	if err != nil || sem == nil || !isWhole(sem) {
		return err
	}
	return withOp("register", name, protocol.Errorf(protocol.StatusPreconditionFailed,
		"the name is an election or a lock: one session holds it whole; give the service a name of its own"))
}

// ownersOf reads how a semaphore that recipes share is held; nil: it is none.
func ownersOf(ctx context.Context, n *Node, name string) (*Semaphore, error) {
	sem, err := n.Describe(ctx, name, ReadConsistency(Strict))
	if isNotFound(err) {
		return nil, nil // what follows says it if the node is gone
	}
	if err != nil || sem.Limit != Max {
		return nil, err
	}
	return sem, nil
}

// isWhole reports whether one session holds all units.
func isWhole(sem *Semaphore) bool { return sem.NumOwners == 1 && sem.Used == Max }
