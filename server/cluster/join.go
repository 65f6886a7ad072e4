package cluster

import (
	"context"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"slices"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server/governor"
	"github.com/signalbox-dev/signalbox/server/peerdiscovery"
	"github.com/signalbox-dev/signalbox/shard/replica/beat"
)

// joinPause is the first pause between two attempts to join; it doubles up to joinPauseMost.
const (
	joinPause     = 250 * time.Millisecond
	joinPauseMost = 5 * time.Second
	joinTimeout   = 12 * time.Second // an instance needs up to 10 s to let another one join
)

// join asks the instance at an address, and others that it learns of, until one lets this instance
// join. Asked twice, the UUID makes it join once. Sponsor is the instance that let it join.
func (b *Bootstrap) join(ctx context.Context, address string) (reply JoinReply, sponsor string, err error) {
	r := b.Request
	r.UUID, r.RaftAddress, r.Cluster = b.Identity().UUID, b.Advertise, b.Cluster
	b.setJoinStatus("asking the instance at %s to join the cluster", address)
	for pause := joinPause; ; pause = min(2*pause, joinPauseMost) {
		reply, err = b.requestJoin(ctx, address, &r)
		if err == nil {
			return reply, address, nil
		}
		if _, ok := errors.AsType[*protocol.Error](err); ok && !protocol.Retryable(err) {
			return reply, address, fmt.Errorf("the cluster at %s rejects this instance: %w", address, err)
		}
		b.setJoinStatus("asking to join; the instance at %s has not accepted: %v", address, err)
		b.Logger.Warn("join failed, will be retried", "address", address, "error", err)
		if !beat.Sleep(ctx, pause/2+mathrand.N(pause/2)) {
			return reply, address, fmt.Errorf("join the cluster at %s: %w; the last attempt ended with: %w",
				address, ctx.Err(), err)
		}
		address = b.findAnother(ctx, address)
	}
}

// findAnother asks the peers once for another address to join at; without one it returns address.
func (b *Bootstrap) findAnother(ctx context.Context, address string) string {
	ctx, cancel := context.WithTimeout(ctx, peerdiscovery.CallTimeout)
	defer cancel()
	peers := slices.Clone(b.Peers)
	for _, p := range b.Identity().Peers {
		if !slices.Contains(peers, p) {
			peers = append(peers, p)
		}
	}
	peers = slices.DeleteFunc(peers, func(p string) bool { return p == b.Advertise })
	leaders := make(chan string, len(peers))
	q := peerdiscovery.Request{ID: governor.NewUUID(), Peers: []string{b.Advertise}}
	for _, p := range peers {
		go func() {
			a, _ := discoveryClient{b.Transport, nil}.Discover(ctx, p, q)
			leaders <- a.Leader
		}()
	}
	for range peers {
		if l := <-leaders; l != "" && l != address {
			return l
		}
	}
	return address
}

func (b *Bootstrap) requestJoin(ctx context.Context, address string, r *JoinRequest) (reply JoinReply, err error) {
	ctx, cancel := context.WithTimeout(ctx, joinTimeout)
	defer cancel()
	body, err := b.Transport.Call(ctx, address, methodJoin, encode(r))
	if err != nil {
		return reply, err
	}
	if err := decode(body, &reply); err != nil {
		return reply, err
	}
	if reply.Cluster == "" || reply.Instance == 0 || reply.MetaReplica == 0 {
		return reply, errors.New("the reply names no instance")
	}
	return reply, nil
}
