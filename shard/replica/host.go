package replica

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/lni/dragonboat/v4"
	"github.com/lni/dragonboat/v4/config"
	"github.com/lni/vfs"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard/replica/beat"
	"github.com/signalbox-dev/signalbox/shard/replica/engine"
	"github.com/signalbox-dev/signalbox/shard/replica/logstore"
	"github.com/signalbox-dev/signalbox/shard/replica/wakeup"
	"github.com/signalbox-dev/signalbox/shard/replica/wal"
)

const (
	defaultRTT          = 100 * time.Millisecond
	defaultDeployment   = 0x7369_676e_616c_6278 // "signalbx"
	defaultCloseTimeout = 10 * time.Second
	tickPeriod          = 100 * time.Millisecond
	restartTimeout      = 5 * time.Second
)

// HostConfig configures a host. Dir (or Memory) and RaftAddress are required.
type HostConfig struct {
	// Dir holds logs and snapshots. It is created with mode 0700. One process at a time may use it.
	Dir string
	// RaftAddress is the address at which other instances reach this one; it is fixed for a
	// directory. With Memory it may be empty: it is then the disk's own.
	RaftAddress string
	// RTT is the engine's unit of time: a heartbeat each RTT, an election after 10 to 20 of them
	// without a leader. Default 100 ms, at least 1 ms.
	RTT time.Duration
	// Memory keeps everything in memory, for tests. Nothing survives the host unless Disk is given.
	Memory bool
	// Disk is the memory disk to use; it implies Memory.
	Disk *MemoryDisk
	// Transport carries raft messages and snapshots between instances, and decides which addresses
	// are valid. Default: the host reaches no other one.
	Transport config.TransportFactory
	// Removed is called when a replica here has applied its own removal and was stopped. Its data
	// stay, see [Host.RemoveData]. It is called on its own goroutine and may call the host, except
	// Close. A replica that lags may never apply its removal.
	Removed func(shard, replica uint64)
	// Changed is called when a replica here has learned of another leader, has begun or ceased to
	// serve as leader, or has applied a change of members. The engine calls it: it must neither
	// wait nor call the host. Default: nothing.
	Changed func()
	// Fatal is called once, on its own goroutine, when the log store cannot go on: the disk is
	// full, fails, or does not finish a write. Nothing is acknowledged any more and Close may not
	// return: the process must end. Default: a panic.
	Fatal func(error)
	// LowSpace is called, on its own goroutine, when the disk's free space falls below the low
	// mark; see [logstore.Marks]. Default: nothing.
	LowSpace func(logstore.Space)
	// Saved is called with the duration of each write to the log that was synced, its sync
	// included. The engine's step worker calls it, so it must be quick. Default: nothing.
	Saved func(time.Duration)
	// Clock is the time; default [SystemClock]. With a [ManualClock] the host has no ticker.
	Clock Clock
	// Logger takes the host's lines, and the raft engine's two levels lower. Default
	// slog.Default().
	Logger *slog.Logger
	// CloseTimeout bounds Close; default 10 s.
	CloseTimeout time.Duration

	recovery   bool   // opened by a Recovery, which handles the engine's panics
	acceptLoss bool   // see [logstore.Config]
	deployment uint64 // hosts with different numbers ignore each other
}

// fs holds everything that the engine and its log keep.
func (c *HostConfig) fs() vfs.FS {
	if c.Memory {
		return c.Disk.fs
	}
	return vfs.Default
}

// Host is one process's share of all raft groups.
type Host struct {
	cfg       HostConfig
	clock     Clock
	log       *slog.Logger
	store     *logstore.Store
	dirKey    string
	stopTicks func()

	engine     *engine.Engine
	groups     *groupTable
	ticker     *ticker
	campaigner *campaigner

	stopC chan struct{}
	wg    sync.WaitGroup
}

// ErrLocked: the data directory is in use.
var ErrLocked = engine.ErrLocked

// dragonboat's lock of a directory is per process: it does not keep out a second host of this
// process.
var (
	openDirsMu sync.Mutex
	openDirs   = make(map[string]bool)
)

func lockDir(key string) error {
	openDirsMu.Lock()
	defer openDirsMu.Unlock()
	if openDirs[key] {
		return ErrLocked
	}
	openDirs[key] = true
	return nil
}

func unlockDir(key string) {
	openDirsMu.Lock()
	defer openDirsMu.Unlock()
	delete(openDirs, key)
}

// setDefaults fills in the fields that are not set, and checks the rest.
func (c *HostConfig) setDefaults() error {
	if c.Disk != nil {
		c.Memory = true
	} else if c.Memory {
		c.Disk = NewMemoryDisk()
	}
	c.RTT = cmp.Or(c.RTT, defaultRTT)
	if c.RTT < time.Millisecond {
		return fmt.Errorf("raft round trip time is %v, but must be at least 1ms", c.RTT)
	}
	c.deployment = cmp.Or(c.deployment, defaultDeployment)
	c.Clock = cmp.Or(c.Clock, SystemClock())
	c.Logger = cmp.Or(c.Logger, slog.Default())
	if c.Changed == nil {
		c.Changed = func() {}
	}
	if c.Fatal == nil {
		c.Fatal = func(err error) { panic(err) }
	}
	c.CloseTimeout = cmp.Or(c.CloseTimeout, defaultCloseTimeout)
	if c.Memory && c.Dir == "" {
		c.Dir = "/signalbox"
	}
	if c.Dir == "" {
		return errors.New("data directory is not set; give one")
	}
	if c.Memory && c.RaftAddress == "" {
		c.RaftAddress = c.Disk.addr
	}
	c.Transport = cmp.Or[config.TransportFactory](c.Transport, alone{})
	if !c.Transport.Validate(c.RaftAddress) {
		return fmt.Errorf("raft address %q is not one that the transport can reach", c.RaftAddress)
	}
	return nil
}

// openFolder makes the data directory, locks it and checks its files. key is its name among those
// that are locked.
func (c *HostConfig) openFolder() (key string, err error) {
	if c.Memory {
		key = fmt.Sprintf("%p:%s", c.Disk, c.Dir)
		return key, lockDir(key)
	}
	if err := os.MkdirAll(c.Dir, 0o700); err != nil {
		return "", fmt.Errorf("create data directory: %w", err)
	}
	// MkdirAll does not change an existing directory's mode.
	// Another user's folder stays as it is: the caller has checked who may use it.
	if err := os.Chmod(c.Dir, 0o700); err != nil && !errors.Is(err, fs.ErrPermission) {
		return "", fmt.Errorf("restrict access to data directory: %w", err)
	}
	real, err := filepath.EvalSymlinks(c.Dir)
	if err != nil {
		return "", fmt.Errorf("find data directory: %w", err)
	}
	if key, err = filepath.Abs(real); err != nil {
		return "", fmt.Errorf("find data directory: %w", err)
	}
	if err := lockDir(key); err != nil {
		return "", err
	}
	if engine.LogIsMissing(c.Dir) {
		err = fmt.Errorf(
			"the log is missing from data folder %q: put the whole folder back, or start on a new one", c.Dir)
	} else {
		err = engine.CheckFiles(c.Dir)
	}
	if err != nil {
		unlockDir(key)
	}
	return key, err
}

// OpenHost opens the data directory and starts the raft engine. It returns [ErrLocked] if another
// process, or another host of this one, uses the directory.
func OpenHost(cfg HostConfig) (*Host, error) {
	if err := cfg.setDefaults(); err != nil {
		return nil, err
	}
	dirKey, err := cfg.openFolder()
	if err != nil {
		return nil, err
	}
	h := &Host{
		cfg: cfg, clock: cfg.Clock, log: cfg.Logger, dirKey: dirKey, stopC: make(chan struct{}),
		engine: engine.New(cfg.RTT), groups: newGroupTable(),
	}
	h.ticker = &ticker{groups: h.groups, clock: h.clock}
	h.store = logstore.New(logstore.Config{
		Dir: cfg.Dir, FS: cfg.fs(), Fatal: cfg.Fatal, Low: cfg.LowSpace, Saved: cfg.Saved,
		Logger: cfg.Logger, AcceptLoss: cfg.acceptLoss,
		ReturnDamage: cfg.recovery,
	})
	r := &interceptor{next: cfg.Transport, answered: h.store.ReplicateAnswered}
	h.campaigner = &campaigner{
		engine: h.engine, groups: h.groups, deployment: cfg.deployment,
		interceptor: r, Wakeup: wakeup.New(),
	}
	r.campaigner = h.campaigner
	err = h.engine.Open(engine.Config{
		Deployment: cfg.deployment, Dir: cfg.Dir, RaftAddress: cfg.RaftAddress, RTT: cfg.RTT, FS: cfg.fs(),
		Events:   &engineEvents{h.groups, h.campaigner, h.stopRemoved, cfg.Changed},
		LogStore: h.store, Transport: r, Logger: cfg.Logger,
	})
	if err != nil {
		unlockDir(h.dirKey)
		return nil, err
	}
	beat.Align()
	h.wg.Go(func() { h.campaigner.run(h.stopC) })
	if m, ok := cfg.Clock.(*ManualClock); ok {
		h.stopTicks = h.ticker.follow(m)
	} else {
		h.wg.Go(func() { h.ticker.run(h.stopC) })
	}
	return h, nil
}

// fatal reports an error of a machine and does not return: the engine would panic before anything
// is reported. Without a host it returns the error.
func (h *Host) fatal(err error) error {
	if h != nil {
		h.store.Fail(err)
	}
	return err
}

// RaftAddress is the address where other instances reach this host.
func (h *Host) RaftAddress() string { return h.cfg.RaftAddress }

// DiskWaiting returns the age of the oldest unfinished write to the log, or 0.
func (h *Host) DiskWaiting() time.Duration { return h.store.Waiting() }

// Space returns the free space on the disk of the log, at most a second old, and 100 ms while the
// log is written; ok is false if the disk does not report it.
func (h *Host) Space() (logstore.Space, bool) { return h.store.Space() }

// LogSize is the room that the log takes.
func (h *Host) LogSize() wal.Size { return h.store.Size() }

// Tick ticks all shards of a host with a [ManualClock], which calls it, and waits until the
// consequences are applied, at most five seconds of real time each.
func (h *Host) Tick() { h.ticker.step(true) }

// Report returns a report of each replica here, in the order of their shards, cheaply enough for
// each heartbeat. Removed replicas are included until their data are removed.
func (h *Host) Report() []GroupReport { return report(h.groups, h.engine) }

// SuppressElections must be called before the start of a replica that is one of several voters.
// While it reads back a log in which it was once the only voter, it must not campaign: it would
// take the leadership away with a log that lags behind.
func (h *Host) SuppressElections(shard uint64) {
	h.campaigner.suppress(shard)
}

// ReplaceLeader makes replicas here campaign in the groups whose leader was on the host at a raft
// address, because its process has ended. They need not wait for the election timeout. Agree are
// the raft addresses of other hosts that found the same: a group in which these and this host are
// no majority is left alone. It returns the number of groups in which a replica here campaigns.
//
// A wrong report costs a needless election, which raft tolerates at any time. The pre-vote is
// skipped, which would protect a live leader; the finding of a majority that the leader's process
// has ended replaces it.
func (h *Host) ReplaceLeader(address string, agree []string) (stands int) {
	return h.campaigner.replaceLeader(address, agree)
}

// Transfer makes another voter the leader of a shard that this host's replica leads, and waits
// until its epoch is applied here. It makes three attempts. Without load, and with a target that is
// up to date, it takes a few milliseconds. Nil: the target leads, in a term after the given one.
// StatusAborted: it does not lead, or no longer. StatusUnavailable: this replica does not lead, or
// only believes so in an old term.
//
// After is the term that the caller has seen led by another replica, 0 for none. An isolated
// replica believes for a while that it leads. If it is the target, its belief must not count as a
// completed transfer.
//
// A data shard logs the transfer first ([Shard.LogTransfer]). Then its proposals are paused, since
// batches in flight must be applied first: requests wait in the open batch for 80 ms in the first
// attempt, up to 320 ms in the last. If the leadership has moved, they fail with StatusUnavailable;
// nothing of them was proposed. The engine gives up a target that does not respond after ten round
// trip times, and drops all proposals until then; the pause lasts as long.
func (h *Host) Transfer(ctx context.Context, shard, toReplica, after uint64) error {
	g := h.groups.get(shard)
	if g == nil {
		return errNoReplica
	}
	infos := h.engine.Infos()
	if infos == nil {
		return errHostClosed
	}
	if i, ok := infos[shard]; !ok || i.Voters[toReplica] == "" {
		return protocol.Errorf(protocol.StatusPreconditionFailed,
			"replica %d does not vote in shard %d; promote it first", toReplica, shard)
	}
	return g.replica.transfer(ctx, toReplica, after)
}

// ErrNoSnapshot: no snapshot was saved because one is being saved, or nothing was applied since the
// last.
var ErrNoSnapshot = errors.New("no snapshot was saved: one is under way, or nothing was applied since the last")

// SnapshotNow saves a snapshot of the shard, waits until it is written, and returns its index.
func (h *Host) SnapshotNow(ctx context.Context, id uint64) (index uint64, err error) {
	index, err = engine.Wait(ctx, h.engine, func(ctx context.Context, nh *dragonboat.NodeHost) (uint64, error) {
		return nh.SyncRequestSnapshot(ctx, id, dragonboat.DefaultSnapshotOption)
	})
	if errors.Is(err, dragonboat.ErrRejected) || errors.Is(err, dragonboat.ErrSystemBusy) {
		return 0, ErrNoSnapshot
	}
	return index, err
}

// Close stops all replicas and the engine. A proposed entry that is not applied yet may or may not
// be applied after a restart; no outcome is reported. On a full disk the engine never finishes:
// Close gives up after CloseTimeout and returns an error, and the process should exit.
func (h *Host) Close() error {
	if !h.groups.close() {
		return nil
	}
	if h.stopTicks != nil {
		h.stopTicks()
	}
	close(h.stopC)
	list := h.groups.running()
	done := make(chan struct{})
	go func() {
		defer close(done)
		var stops sync.WaitGroup
		for _, g := range list {
			stops.Go(g.replica.stop) // each may wait for batches in flight
		}
		stops.Wait()
		h.wg.Wait()
		h.engine.Close()
	}()
	t := time.NewTimer(h.cfg.CloseTimeout)
	defer t.Stop()
	select {
	case <-done:
	case <-t.C:
		return fmt.Errorf("raft engine did not stop within %v; end the process", h.cfg.CloseTimeout)
	}
	for _, g := range list {
		g.replica.stopped()
	}
	unlockDir(h.dirKey)
	if err := h.store.CloseError(); err != nil {
		return fmt.Errorf("%w; what was acknowledged is on the disk", err)
	}
	return nil
}
