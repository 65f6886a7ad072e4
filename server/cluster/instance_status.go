package cluster

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// ErrExpelled: the cluster has expelled this instance.
var ErrExpelled = errors.New(
	"current instance is expelled from the cluster and cannot come back; to join again, start it on a new data folder")

// InstanceStatus asks the others for this instance's status in the cluster: the id of its meta
// replica, 0 while it has none. It returns the first conclusive answer. An answer of a lagging
// instance may be old, so an instance that cannot reach the meta shard asks again. It fails with
// ErrExpelled, or if nobody answers: all of them may be down.
func (b *Bootstrap) InstanceStatus(ctx context.Context) (metaReplica uint64, err error) {
	id := b.Identity()
	if len(id.Known) == 0 {
		return 0, errors.New("no other instance is known")
	}
	ctx, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()
	type result struct {
		address string
		who     instanceStatusReply
		err     error
	}
	results := make(chan result, len(id.Known))
	for _, address := range id.Known {
		go func() {
			r := result{address: address}
			body, err := b.Transport.Call(ctx, address, methodInstanceStatus, encode(&instanceStatusRequest{UUID: id.UUID}))
			if err == nil {
				err = decode(body, &r.who)
			}
			r.err = err
			results <- r
		}()
	}
	answered := false
	for range id.Known {
		r := <-results
		if r.err == nil {
			b.setUnreached(r.address, r.who.Unreached)
		}
		switch {
		case r.err != nil:
			err = r.err
		case r.who.Expelled:
			return 0, ErrExpelled
		case r.who.MetaReplica >= id.MetaReplica:
			return r.who.MetaReplica, nil
		default:
			answered = answered || r.who.MetaReplica == 0 // a lower id is outdated
		}
	}
	if answered {
		return 0, nil
	}
	if err == nil {
		err = errors.New("the others do not know yet what this instance knows")
	}
	return 0, err
}

const statusTimeout = 3 * time.Second

// setUnreached notes why the instance at an address does not reach this one; empty: it does.
func (b *Bootstrap) setUnreached(from, why string) {
	text := ""
	if why != "" {
		text = fmt.Sprintf("the instance at %s does not reach this one at %s, the raft address that it advertises (%s); "+
			"open the way to that address, or expel this instance and start it on a new folder with another --raft-advertise",
			from, b.Advertise, why)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.unreached = text
}

// Unreached names in a sentence an instance that does not reach this one, and the remedy; empty if
// no instance has reported it. It is as old as the last InstanceStatus.
func (b *Bootstrap) Unreached() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.unreached
}
