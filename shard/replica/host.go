package replica

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lni/dragonboat/v4"
	"github.com/lni/dragonboat/v4/config"

	"github.com/signalbox-dev/signalbox/shard/replica/logstore"
	"github.com/signalbox-dev/signalbox/shard/replica/wal"
)

// HostConfig configures a host. Dir (or Memory) and RaftAddress are required.
type HostConfig struct {
	// Dir holds logs and snapshots. It is created with mode 0700. One process at a time may use it.
	Dir string
	// RaftAddress is where other instances reach this one; it is fixed for a directory. With Memory
	// it may be empty: the host then has its own name in Net.
	RaftAddress string
	// RTT is the engine's unit of time: a heartbeat each RTT, an election after 10 to 20 of them
	// without a leader. Default 100 ms, at least 1 ms.
	RTT time.Duration
	// Memory keeps everything in memory, for tests. Nothing survives the host unless Disk is given.
	Memory bool
	// Disk is the memory disk to use; it implies Memory.
	Disk *MemoryDisk
	// Transport carries raft messages and snapshots between instances, and decides which addresses
	// are valid. Without one, Net carries them between hosts in memory; default a net of the host's
	// own.
	Transport config.TransportFactory
	Net       *MemoryNet
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

// Host is one process's share of all raft groups.
type Host struct {
	cfg       HostConfig
	clock     Clock
	log       *slog.Logger
	nh        *dragonboat.NodeHost
	store     *logstore.Store
	dirKey    string
	stopTicks func()

	idleTicks atomic.Int64  // since the last event; with a [ManualClock]
	events    atomic.Uint64 // entries with events, at the last tick
	stopC     chan struct{}
	wg        sync.WaitGroup

	campaigner *campaigner

	engineMu      sync.RWMutex // held for reading while the engine is asked about its replicas
	engineClosing bool         // it must not be asked any more

	mu      sync.Mutex
	closed  bool
	groups  map[uint64]*group  // by shard
	removed map[[2]uint64]bool // shard and replica of applied removals
}

// ErrLocked: the data directory is in use.
var ErrLocked = errors.New("data directory is in use by another process; stop it, or give this one another directory")

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

// OpenHost opens the data directory and starts the raft engine. It returns [ErrLocked] if another
// process, or another host of this one, uses the directory.
func OpenHost(cfg HostConfig) (*Host, error) {
	if cfg.Disk != nil {
		cfg.Memory = true
	} else if cfg.Memory {
		cfg.Disk = NewMemoryDisk()
	}
	if cfg.RTT == 0 {
		cfg.RTT = defaultRTT
	}
	if cfg.RTT < time.Millisecond {
		return nil, fmt.Errorf("raft round trip time is %v, but must be at least 1ms", cfg.RTT)
	}
	if cfg.deployment == 0 {
		cfg.deployment = defaultDeployment
	}
	if cfg.Clock == nil {
		cfg.Clock = SystemClock()
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	if cfg.Changed == nil {
		cfg.Changed = func() {}
	}
	if cfg.Fatal == nil {
		cfg.Fatal = func(err error) { panic(err) }
	}
	if cfg.CloseTimeout == 0 {
		cfg.CloseTimeout = defaultCloseTimeout
	}
	if cfg.Memory && cfg.Dir == "" {
		cfg.Dir = "/signalbox"
	}
	if cfg.Dir == "" {
		return nil, errors.New("data directory is not set; give one")
	}
	if cfg.Memory && cfg.RaftAddress == "" {
		cfg.RaftAddress = cfg.Disk.addr
	}
	if cfg.Net == nil {
		cfg.Net = NewMemoryNet()
	}
	if cfg.Transport == nil {
		cfg.Transport = cfg.Net
	}
	if !cfg.Transport.Validate(cfg.RaftAddress) {
		return nil, fmt.Errorf("raft address %q is not one that the transport can reach", cfg.RaftAddress)
	}

	h := &Host{
		cfg: cfg, clock: cfg.Clock, log: cfg.Logger, stopC: make(chan struct{}), groups: make(map[uint64]*group),
		removed: make(map[[2]uint64]bool),
	}
	if cfg.Memory {
		h.dirKey = fmt.Sprintf("%p:%s", cfg.Disk, cfg.Dir)
	} else {
		if err := os.MkdirAll(cfg.Dir, 0o700); err != nil {
			return nil, fmt.Errorf("create data directory: %w", err)
		}
		// MkdirAll does not change an existing directory's mode.
		if err := os.Chmod(cfg.Dir, 0o700); err != nil {
			return nil, fmt.Errorf("restrict access to data directory: %w", err)
		}
		real, err := filepath.EvalSymlinks(cfg.Dir)
		if err != nil {
			return nil, fmt.Errorf("find data directory: %w", err)
		}
		if h.dirKey, err = filepath.Abs(real); err != nil {
			return nil, fmt.Errorf("find data directory: %w", err)
		}
	}
	if err := lockDir(h.dirKey); err != nil {
		return nil, err
	}
	if !cfg.Memory {
		var err error
		if logIsMissing(cfg.Dir) {
			err = fmt.Errorf("the log is missing from data folder %q: put the whole folder back, or start on a new one", cfg.Dir)
		} else {
			err = checkEngineFiles(cfg.Dir)
		}
		if err != nil {
			unlockDir(h.dirKey)
			return nil, err
		}
	}
	routeEngineLogs(cfg.Logger)

	h.store = logstore.New(logstore.Config{
		Dir: cfg.Dir, Fatal: cfg.Fatal, Low: cfg.LowSpace, Saved: cfg.Saved, Logger: cfg.Logger, AcceptLoss: cfg.acceptLoss,
		ReturnDamage: cfg.recovery, EnginePanics: reportEnginePanics,
	})
	engine := h.engineConfig()
	engine.Expert.LogDBFactory = h.store
	r := &interceptor{next: cfg.Transport}
	h.campaigner = &campaigner{h: h, interceptor: r, wakeup: make(chan struct{}, 1)}
	r.campaigner = h.campaigner
	engine.Expert.TransportFactory = r
	nh, err := newNodeHost(engine)
	if err != nil {
		unlockDir(h.dirKey)
		return nil, err
	}
	h.nh = nh
	h.wg.Add(1)
	go h.campaigner.run()
	if m, ok := cfg.Clock.(*ManualClock); ok {
		untick, remove := m.OnTick(h.manualTick), register[skipper](m, m.skipHosts, h)
		h.stopTicks = func() { untick(); remove() }
	} else {
		h.wg.Add(1)
		go h.tickLoop()
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

// DiskWaiting is the age of the oldest unfinished write to the log; 0 if there is none.
func (h *Host) DiskWaiting() time.Duration { return h.store.Waiting() }

// Space is the free space on the disk of the log, at most 100 ms old; false for a disk that cannot
// tell.
func (h *Host) Space() (logstore.Space, bool) { return h.store.Space() }

// LogSize is the room that the log takes.
func (h *Host) LogSize() wal.Size { return h.store.Size() }

func (h *Host) tickLoop() {
	defer h.wg.Done()
	t := time.NewTicker(tickPeriod)
	defer t.Stop()
	for {
		select {
		case <-h.stopC:
			return
		case <-t.C:
			now := h.clock.Now()
			for _, g := range h.running() {
				g.replica.tick(now)
			}
		}
	}
}

// Tick ticks all shards of a host with a [ManualClock], which calls it, and waits until the
// consequences are applied, at most five seconds of real time each.
func (h *Host) Tick() { h.manualTick(true) }

// manualTick is Tick. With thorough false it does not wait for messages between shards unless a
// shard applied something: in most steps nothing is due.
func (h *Host) manualTick(thorough bool) {
	list := h.running()
	applied := func() (n uint64) {
		for _, g := range list {
			n += g.replica.appliedEntries()
		}
		return n
	}
	before := applied()
	defer func() {
		happened := uint64(0)
		for _, s := range h.shards() {
			happened += s.eventEntries()
		}
		if h.events.Swap(happened) == happened {
			h.idleTicks.Add(1)
		} else {
			h.idleTicks.Store(0)
		}
	}()
	waits := make([]func(thorough bool), 0, len(list))
	for _, g := range list {
		waits = append(waits, g.replica.startTick())
	}
	for _, wait := range waits {
		wait(thorough)
	}
	if !thorough && applied() == before {
		return
	}
	// Shards may have given each other work. All are quiet if each was found quiet after all others
	// were.
	end := time.Now().Add(quietTimeout)
	for quiet := 0; quiet < len(list) && time.Now().Before(end); {
		for _, g := range list {
			if g.replica.quiet() {
				quiet++
				continue
			}
			quiet = 0
			g.replica.awaitQuiet(quietTimeout)
		}
	}
}

// minQuietTicks is the number of ticks without an event before time may be skipped: by then the
// effects of an event on other shards are done.
const minQuietTicks = 4

// due is the time until the next deadline of any shard, for a [ManualClock].
func (h *Host) due() (in time.Duration, has bool) {
	if h.idleTicks.Load() < minQuietTicks {
		return 0, true
	}
	for _, s := range h.shards() {
		if d, ok := s.due(); ok && (!has || d < in) {
			in, has = d, true
		}
	}
	return in, has
}

func (h *Host) skipTime(d time.Duration) {
	for _, s := range h.shards() {
		s.skipTime(d)
	}
}

// shards lists the replicas of data shards.
func (h *Host) shards() (list []*Shard) {
	for _, g := range h.running() {
		if s, ok := g.replica.(*Shard); ok {
			list = append(list, s)
		}
	}
	return list
}

// quietTimeout bounds, in real time, the wait of a tick for a shard.
const quietTimeout = 5 * time.Second

// ErrNoSnapshot: no snapshot was saved because one is being saved, or nothing was applied since the
// last.
var ErrNoSnapshot = errors.New("no snapshot was saved: one is under way, or nothing was applied since the last")

// SnapshotNow saves a snapshot of the shard, waits until it is written, and returns its index.
func (h *Host) SnapshotNow(ctx context.Context, id uint64) (index uint64, err error) {
	index, err = h.nh.SyncRequestSnapshot(ctx, id, dragonboat.DefaultSnapshotOption)
	if errors.Is(err, dragonboat.ErrRejected) || errors.Is(err, dragonboat.ErrSystemBusy) {
		return 0, ErrNoSnapshot
	}
	return index, err
}

// Close stops all replicas and the engine. A proposed entry that is not applied yet may or may not
// be applied after a restart; no outcome is reported. On a full disk the engine never finishes:
// Close gives up after CloseTimeout and returns an error, and the process should exit.
func (h *Host) Close() error {
	h.mu.Lock()
	if h.closed {
		h.mu.Unlock()
		return nil
	}
	h.closed = true
	h.mu.Unlock()

	if h.stopTicks != nil {
		h.stopTicks()
	}
	close(h.stopC)
	list := h.running()
	var stops sync.WaitGroup
	for _, g := range list {
		stops.Go(g.replica.stop) // each may wait for batches in flight
	}
	stops.Wait()
	h.wg.Wait()
	h.engineMu.Lock()
	h.engineClosing = true
	h.engineMu.Unlock()
	done := make(chan struct{})
	go func() {
		defer close(done)
		h.nh.Close()
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
	return nil
}
