package client

import (
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
)

// sessionStopTimeout bounds how long Client.Close waits for its sessions' stops.
const sessionStopTimeout = 2 * time.Second

// Client is a connection to a cluster, for any number of goroutines. It keeps one connection to
// each instance that it talks to, and replaces a connection that is lost. Make one with Dial or
// Open; one per process is enough.
type Client struct {
	cfg        Config
	clock      clock
	ctx        context.Context // ends when the client is closed
	stop       context.CancelCauseFunc
	goroutines sync.WaitGroup // goroutines to wait for in Close

	routes          atomic.Pointer[routeTable]
	replicaSeed     uint64       // chooses the replicas that this client reads from
	readIndexes     sync.Map     // shard -> *atomic.Uint64: highest log index read, so that relaxed reads do not go back
	shortestTimeout atomic.Int64 // shortest session timeout, as time.Duration; 0: no session

	lastWatchID atomic.Uint64 // id of the last one-shot watch

	mu                sync.Mutex
	closed            bool
	cluster           string
	connectors        map[uint64]*connector // by instance
	bootstrap         *connector            // dials the endpoints
	mapFetch          *sharedAttempt        // of the map
	announced         announcedMap          // the newest map that an instance announced
	fetchingAnnounced bool                  // somebody fetches it
	newMap            chan struct{}         // closed and replaced with every new map
	sessions          map[uint64]*Session
	restores          map[restoreKey]uint64 // nonces of restores that were given up unanswered
	watches           map[*watch]struct{}
	watchdog          *watchdog

	dispatcher *dispatcher
}

func newClient(cfg Config) *Client {
	c := &Client{replicaSeed: rand.Uint64() >> 1, cfg: cfg, clock: cfg.clock, connectors: make(map[uint64]*connector), sessions: make(map[uint64]*Session), watches: make(map[*watch]struct{}), newMap: make(chan struct{}), dispatcher: newDispatcher()}
	c.ctx, c.stop = context.WithCancelCause(context.Background())
	c.bootstrap = &connector{c: c, addresses: cfg.Endpoints, backoff: backoff{base: reconnectBase, max: reconnectMax}}
	return c
}

// Close ends all sessions of the client, so that what they hold is free at once. It waits up to 2 s
// for that, and closes the connections. Calls in progress return ErrClientClosed. Close may be
// called again. An error means that a stop was not answered in time: that session ends with its
// timeout.
func (c *Client) Close() error {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return nil
	}
	open := slices.Collect(maps.Values(c.sessions))
	c.mu.Unlock()

	ctx, cancel := context.WithTimeoutCause(c.ctx, sessionStopTimeout, errors.New("a session's stop was not answered in time"))
	defer cancel()
	failed := make(chan error, len(open))
	for _, s := range open {
		go func() { failed <- s.Close(ctx) }()
	}
	var err error
	for range open {
		err = errors.Join(err, <-failed)
	}
	c.CloseWithoutRelease()
	return err
}

// CloseWithoutRelease closes the connections and leaves the sessions to their timeouts, as a crash
// of the process would. It is for tests.
func (c *Client) CloseWithoutRelease() {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return
	}
	c.closed = true
	left := slices.Collect(maps.Values(c.sessions))
	if c.watchdog != nil {
		c.watchdog.stop()
	}
	c.mu.Unlock()
	c.stop(ErrClientClosed)
	c.mu.Lock()
	c.notifyWatches()
	// After the stop: a goroutine that has just made a connection stores it first and looks for the
	// stop then, so that one of the two ends it.
	conns := make([]*conn, 0, len(c.connectors))
	for _, l := range c.connectors {
		if cn := l.current.Load(); cn != nil {
			conns = append(conns, cn)
		}
	}
	c.mu.Unlock()
	for _, s := range left {
		s.closeWithoutRelease()
	}
	for _, cn := range conns {
		cn.end(ErrClientClosed)
	}
	c.goroutines.Wait()
}

// ServerInfo is what an instance said about itself and about the client.
type ServerInfo struct {
	Cluster  string // id
	Instance uint64
	Version  string // name and version, for people
	Identity string // who the credentials say the client is
}

// ServerInfo describes one of the instances that the client is connected to.
func (c *Client) ServerInfo(ctx context.Context) (ServerInfo, error) {
	cn, err := c.anyConn(ctx)
	if err != nil {
		return ServerInfo{}, err
	}
	return ServerInfo{Cluster: cn.hello.Cluster, Instance: cn.instance, Version: cn.hello.Server, Identity: cn.hello.Identity}, nil
}

// run starts a goroutine that Close waits for, and that must end with c.ctx. It is false, and
// nothing is started, when the client is closed.
func (c *Client) run(f func()) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return false
	}
	c.goroutines.Go(f)
	return true
}

// destination finds the connection that a request goes to, the bucket that routes it there, and the
// shard that serves it, 0 for none. The shard is also returned with an error.
type destination func(ctx context.Context) (cn *conn, bucket, shard uint64, err error)

func (c *Client) anyInstance(ctx context.Context) (*conn, uint64, uint64, error) {
	cn, err := c.anyConn(ctx)
	return cn, 0, 0, err
}

// atBucket is the destination of requests that a bucket's shard serves.
func (c *Client) atBucket(tier uint8, bucket uint32) destination {
	return func(ctx context.Context) (*conn, uint64, uint64, error) {
		cn, shard, err := c.connToBucket(ctx, tier, bucket)
		return cn, uint64(bucket), shard, err
	}
}

func (c *Client) atShard(tier uint8, shard uint64) destination {
	return func(ctx context.Context) (*conn, uint64, uint64, error) {
		t, err := c.tierOf(ctx, tier)
		if err != nil {
			return nil, 0, shard, err
		}
		cn, err := c.connToShard(ctx, shard)
		return cn, uint64(t.someBucket[shard]), shard, err
	}
}

// request sends a request that belongs to no session, again and again until an answer decides it or
// ctx ends. repeated says that an earlier sending, or this one, may have taken effect without an
// answer.
func (c *Client) request(ctx context.Context, where destination, kind protocol.Kind, m, reply protocol.Message) (repeated bool, err error) {
	retry := backoff{base: retryBase, max: retryMax}
	var last error
	for {
		cn, bucket, shard, err := where(ctx)
		if err == nil {
			var sent bool
			sent, err = cn.roundTrip(ctx, nil, kind, shard, bucket, m, reply)
			if err == nil {
				return repeated, nil
			}
			if sent && !answered(err) {
				repeated = true
			}
		}
		switch {
		case c.ctx.Err() != nil:
			return repeated, ErrClientClosed
		case ctx.Err() != nil && !answered(err):
			return repeated, interrupted(ctx, last)
		case !canResend(err):
			return repeated, err
		}
		last = err
		c.waitRetry(ctx, shard, cn, err, &retry)
		if ctx.Err() != nil {
			return repeated, interrupted(ctx, last)
		}
	}
}

// answered says whether the server decided about a request that failed like this.
func answered(err error) bool {
	var e *protocol.Error
	var u *undecided
	return errors.As(err, &e) && !errors.As(err, &u)
}

// canResend says whether a request that failed like this may be sent again, possibly elsewhere.
func canResend(err error) bool {
	var refused *permanentError
	if errors.As(err, &refused) {
		return false
	}
	return errors.Is(err, errConnLost) || errors.Is(err, ErrUnreachable) || protocol.Retryable(err)
}

// waitRetry updates what is known of the cluster and waits before the next try of a request that a
// shard did not serve; 0 is no shard. cn is the connection that the request was sent on, or nil.
// Another map or leader ends the wait.
func (c *Client) waitRetry(ctx context.Context, shard uint64, cn *conn, err error, retry *backoff) {
	if errors.Is(err, errMapChanged) {
		retry.failures = 0
		return
	}
	moved := c.mapChanged() // before the map is asked for: what comes meanwhile ends the wait
	if c.updateRoutes(ctx, shard, cn, err, retry.failures) {
		retry.failures++
		return
	}
	if errors.Is(err, errConnLost) {
		return
	}
	t := time.NewTimer(retry.next())
	defer t.Stop()
	select {
	case <-t.C:
	case <-moved:
		retry.failures = 1 // not 0: announcements may name an instance that cannot answer, again and again
	case <-ctx.Done():
	case <-c.ctx.Done():
	}
}

// readIndex is the highest log index this client has read of a shard.
func (c *Client) readIndex(shard uint64) *atomic.Uint64 {
	if v, ok := c.readIndexes.Load(shard); ok {
		return v.(*atomic.Uint64)
	}
	v, _ := c.readIndexes.LoadOrStore(shard, new(atomic.Uint64))
	return v.(*atomic.Uint64)
}

func raiseTo(v *atomic.Uint64, to uint64) {
	for {
		old := v.Load()
		if to <= old || v.CompareAndSwap(old, to) {
			return
		}
	}
}
