package replica

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/lni/dragonboat/v4"
)

// TestCallsBesideClose: any call of the engine beside its close, and after it, is answered. Those
// that wait do not hold the close up.
func TestCallsBesideClose(t *testing.T) {
	for range 10 {
		h := openHost(t, HostConfig{Memory: true})
		s, _ := startOne(t, h, nil)
		startMeta(t, h, 1, map[uint64]string{1: h.RaftAddress()})
		e, session := h.engine, h.engine.session(MetaShard)
		endless, cancel := context.WithTimeout(context.Background(), time.Hour)
		request := func(r *dragonboat.RequestState, err error) error {
			if err == nil {
				<-r.AppliedC()
				r.Release()
			}
			return err
		}
		calls := map[string]func() error{
			"propose":  func() error { return request(e.propose(session, rightsEntry(0), time.Hour)) },
			"read":     func() error { return request(e.requestRead(1, time.Hour)) },
			"transfer": func() error { return e.transferLeader(1, s.Replica()) },
			"remove":   func() error { return e.removeData(1, s.Replica()) },
			"stop":     func() error { return e.stopReplica(2, 1) },
			"start":    func() error { return e.startReplica(nil, true, nil, groupConfig(1, s.Replica(), 10, 5)) },
			"info": func() error {
				if e.infos() == nil {
					return dragonboat.ErrClosed
				}
				return nil
			},
			"members": func() error {
				_, err := wait(endless, e, func(ctx context.Context, nh *dragonboat.NodeHost) (*dragonboat.Membership, error) {
					return nh.SyncGetShardMembership(ctx, 1)
				})
				return err
			},
			"snapshot": func() error {
				_, err := h.SnapshotNow(endless, 1)
				return err
			},
		}
		var begun, over sync.WaitGroup
		for _, call := range calls {
			begun.Add(1)
			over.Go(func() {
				_ = call()
				begun.Done()
				for !errors.Is(call(), dragonboat.ErrClosed) {
				}
			})
		}
		begun.Wait()
		closeHost(t, h)
		over.Wait()
		cancel()
		if e.hasReplica(1, s.Replica()) {
			t.Error("a closed engine says that it has a replica")
		}
	}
}
