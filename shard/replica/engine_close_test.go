package replica

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/lni/dragonboat/v4"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server/servertest/form"
	"github.com/signalbox-dev/signalbox/shard/replica/engine"
)

// TestCloseWaitsForCalls: dragonboat's Close does not begin beside a call. Calls that come later
// are refused, and one that would wait ends.
func TestCloseWaitsForCalls(t *testing.T) {
	t.Parallel()
	h := openHost(t, HostConfig{Memory: true})
	s, _ := startOne(t, h, nil)
	m := startMeta(t, h, 1, map[uint64]string{1: h.RaftAddress()})
	e := h.engine
	entered, leave, within, ended := make(chan struct{}), make(chan struct{}), make(chan error, 1), make(chan error, 1)
	go func() {
		_ = e.Do(func(nh *dragonboat.NodeHost) error {
			entered <- struct{}{}
			<-leave
			within <- nh.RequestLeaderTransfer(1, s.Replica())
			return nil
		})
	}()
	go func() {
		_, err := engine.Wait(context.Background(), e, func(ctx context.Context, _ *dragonboat.NodeHost) (struct{}, error) {
			entered <- struct{}{}
			<-ctx.Done()
			return struct{}{}, ctx.Err()
		})
		ended <- err
	}()
	<-entered
	<-entered
	closed := make(chan error, 1)
	go func() { closed <- h.Close() }()
	eventually(t, "calls to be refused", func() bool {
		return errors.Is(e.TransferLeader(1, s.Replica()), dragonboat.ErrClosed)
	})
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("a call that waits ended with %v", err)
	}
	// What is not known of a closed engine is not said.
	if _, err := h.HasReplica(1, s.Replica()); protocol.StatusOf(err) != protocol.StatusUnavailable {
		t.Errorf("whether it has a replica: %v", err)
	}
	if err := h.Transfer(timeout(t), 1, s.Replica(), 0); protocol.StatusOf(err) != protocol.StatusUnavailable {
		t.Errorf("a transfer: %v", err)
	}
	if err := m.transfer(timeout(t), 2, 0); protocol.StatusOf(err) != protocol.StatusUnavailable {
		t.Errorf("a transfer of the meta shard: %v", err)
	}
	if err := h.StopShard(1); protocol.StatusOf(err) != protocol.StatusUnavailable {
		t.Errorf("a stop: %v", err)
	}
	close(leave)
	if err := <-within; errors.Is(err, dragonboat.ErrClosed) {
		t.Error("dragonboat was being closed beside a call")
	}
	if err := <-closed; err != nil {
		t.Error(err)
	}
}

// TestCallsBesideClose: whatever the engine is asked for while it is closed, the process goes on.
func TestCallsBesideClose(t *testing.T) {
	t.Parallel()
	for range form.Size(3, 10, 10) {
		h := openHost(t, HostConfig{Memory: true})
		s, _ := startOne(t, h, nil)
		startMeta(t, h, 1, map[uint64]string{1: h.RaftAddress()})
		e, session := h.engine, h.engine.Session(MetaShard)
		ended := make(chan struct{})
		endless, cancel := context.WithTimeout(context.Background(), time.Hour)
		request := func(r *dragonboat.RequestState, err error) error {
			if err != nil {
				return err
			}
			select { // a read may be lost when its replica is stopped
			case <-r.AppliedC():
				r.Release()
			case <-ended:
			}
			return nil
		}
		calls := map[string]func() error{
			"propose": func() error { return request(e.ProposeRequest(session, rightsEntry(0), time.Hour)) },
			"read": func() error {
				return request(engine.Call(e, func(nh *dragonboat.NodeHost) (*dragonboat.RequestState, error) { return nh.ReadIndex(1, time.Hour) }))
			},
			"transfer": func() error { return e.TransferLeader(1, s.Replica()) },
			"remove":   func() error { return e.RemoveData(1, s.Replica()) },
			"stop":     func() error { return e.StopReplica(2, 1) },
			"start":    func() error { return e.StartReplica(nil, true, nil, engine.GroupConfig(1, s.Replica(), 10, 5)) },
			"info": func() error {
				if e.Infos() == nil {
					return dragonboat.ErrClosed
				}
				return nil
			},
			"members": func() error {
				_, err := engine.Wait(endless, e, func(ctx context.Context, nh *dragonboat.NodeHost) (*dragonboat.Membership, error) {
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
		close(ended)
		closeHost(t, h)
		over.Wait()
		cancel()
	}
}
