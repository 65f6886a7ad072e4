// How does Redis lock, read and watch through go-redis?

package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/signalbox-dev/signalbox/loadgen"
)

// goRedisTarget speaks to Redis through go-redis. A connection is a client with a pool of one, so
// that no caller waits for another's.
type goRedisTarget struct {
	addr  string
	queue bool // locks are lists whose one element is handed on: waiting is a blocking pop, which is the fastest way there is
	keep  bool // sessions are keys that expire, and are extended
	lazy  bool // the first command connects
}

func (t *goRedisTarget) Name() string { return "redis at " + t.addr }

func (t *goRedisTarget) Code(err error) string { return codeOf(err) }

// answerTimeout is for calls without a deadline of their own, such as the handshake of a connection
// that subscribes, and making that connection: 20,000 at once take Redis longer than the package's
// five seconds. It does not bound a blocking pop or the wait for messages of a subscription.
const answerTimeout = 30 * time.Second

var unlockScript = redis.NewScript(unlock)

func (t *goRedisTarget) Open(ctx context.Context) (loadgen.Conn, error) {
	c := redis.NewClient(&redis.Options{
		Addr: t.addr, PoolSize: 1, MaxRetries: -1, DisableIdentity: true, ContextTimeoutEnabled: true,
		DialTimeout: answerTimeout, ReadTimeout: answerTimeout, ReadBufferSize: 4096, WriteBufferSize: 4096,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
	if t.lazy {
		return &goRedisConn{t: t, c: c}, nil
	}
	if err := c.Ping(ctx).Err(); err != nil {
		return nil, err
	}
	if err := unlockScript.Load(ctx, c).Err(); err != nil {
		return nil, err
	}
	return &goRedisConn{t: t, c: c}, nil
}

type goRedisConn struct {
	t *goRedisTarget
	c *redis.Client

	mu   sync.Mutex
	subs *subscriptions
}

func (c *goRedisConn) Close() error { return c.c.Close() }

func (c *goRedisConn) Session(ctx context.Context) (loadgen.Session, error) {
	s := &goRedisSession{conn: c, token: strconv.FormatUint(rand.Uint64(), 36)}
	if !c.t.keep {
		return s, nil
	}
	key := "session/" + s.token
	if err := c.c.Set(ctx, key, s.token, keptFor).Err(); err != nil {
		return nil, err
	}
	s.stop = make(chan struct{})
	go s.extend(key)
	return s, nil
}

// keptFor is the expiry of a session's key, extended four times within it, as ours are.
const keptFor = 10 * time.Second

type goRedisSession struct {
	conn  *goRedisConn
	token string
	stop  chan struct{}
	once  sync.Once
	lost  atomic.Bool
}

func (s *goRedisSession) extend(key string) {
	// At times of its own, not all at once.
	first := time.NewTimer(rand.N(keptFor / 4))
	defer first.Stop()
	select {
	case <-first.C:
	case <-s.stop:
		return
	}
	t := time.NewTicker(keptFor / 4)
	defer t.Stop()
	for {
		ok, err := s.conn.c.PExpire(context.Background(), key, keptFor).Result()
		if err != nil || !ok {
			s.lost.Store(true)
			return
		}
		select {
		case <-t.C:
		case <-s.stop:
			return
		}
	}
}

func (s *goRedisSession) Alive() bool { return !s.lost.Load() }

func (s *goRedisSession) Close(context.Context) error {
	if s.stop != nil {
		s.once.Do(func() { close(s.stop) })
	}
	return nil
}

func (s *goRedisSession) Acquirer(loadgen.AcquireOptions) loadgen.Acquirer {
	if s.conn.t.queue {
		return goRedisQueue(s.conn.c)
	}
	return loadgen.AcquirerFunc(s.acquire)
}

// acquire locks as Redis's documentation says: set if absent with an expiry, and a script that
// compares and deletes.
func (s *goRedisSession) acquire(ctx context.Context, name string) (loadgen.Lease, error) {
	c := s.conn.c
	err := c.SetArgs(ctx, name, s.token, redis.SetArgs{Mode: "NX", TTL: lockExpiry * time.Millisecond}).Err()
	if err == redis.Nil {
		return nil, errLockTaken
	}
	if err != nil {
		return nil, err
	}
	return loadgen.LeaseFunc(func(ctx context.Context) error {
		return unlockScript.EvalSha(ctx, c, []string{name}, s.token).Err()
	}), nil
}

// goRedisQueue is a lock as a list with one element. It is fair and needs no polling, but a holder
// that dies takes the element with it: for Redis's sake that is not counted here.
func goRedisQueue(c *redis.Client) loadgen.AcquirerFunc {
	made := map[string]bool{}
	return func(ctx context.Context, name string) (loadgen.Lease, error) {
		if !made[name] {
			first, err := c.SetNX(ctx, name+"/made", "1", 0).Result()
			if err == nil && first {
				err = c.LPush(ctx, name, "1").Err()
			}
			if err != nil {
				return nil, err
			}
			made[name] = true
		}
		if err := c.BLPop(ctx, 0, name).Err(); err != nil {
			return nil, err
		}
		return loadgen.LeaseFunc(func(ctx context.Context) error { return c.LPush(ctx, name, "1").Err() }), nil
	}
}

func (s *goRedisSession) Create(ctx context.Context, name string, data []byte) error {
	return s.conn.c.Set(ctx, name, data, 0).Err()
}

func (s *goRedisSession) Delete(ctx context.Context, name string) error {
	return s.conn.c.Del(ctx, name).Err()
}

// Write publishes: fire and forget, nothing is kept.
func (s *goRedisSession) Write(ctx context.Context, name string, data []byte) error {
	return s.conn.c.Publish(ctx, name, data).Err()
}

func (s *goRedisSession) Reader(bool) loadgen.Reader {
	return loadgen.ReaderFunc(func(ctx context.Context, name string) error { return s.conn.c.Get(ctx, name).Err() })
}

// Watch subscribes. The first watcher of a connection subscribes to the channel, the others to
// patterns that only that channel matches, so that each gets a message of its own. go-redis lets no
// context end a handshake, so a watch does not wait for one when its context ends.
func (s *goRedisSession) Watch(ctx context.Context, name string, notify func([]byte)) error {
	subs := s.conn.subscriptions()
	begun := make(chan error, 1)
	go func() { begun <- subs.add(ctx, name, notify) }()
	select {
	case err := <-begun:
		if err != nil {
			return err
		}
	case <-ctx.Done():
		go subs.close()
		return ctx.Err()
	}
	notify(nil) // Redis has no value to send: the watch has begun
	select {
	case err := <-subs.lost:
		return err
	case <-ctx.Done():
		go subs.close()
		return ctx.Err()
	}
}

func (c *goRedisConn) subscriptions() *subscriptions {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.subs == nil {
		c.subs = &subscriptions{ps: c.c.Subscribe(context.Background()), callbacks: map[string]func([]byte){},
			ready: map[string]chan struct{}{}, lost: make(chan error, 1)}
	}
	return c.subs
}

// subscriptions of one connection. One goroutine reads.
type subscriptions struct {
	ps        *redis.PubSub
	mu        sync.Mutex
	n         int
	callbacks map[string]func([]byte) // by channel or pattern
	ready     map[string]chan struct{}
	reading   bool
	once      sync.Once
	lost      chan error
}

// add subscribes to a name, and waits until the server says so.
func (s *subscriptions) add(ctx context.Context, name string, notify func([]byte)) error {
	s.mu.Lock()
	if s.n>>len(name) > 0 {
		s.mu.Unlock()
		return fmt.Errorf("a connection has %d subscriptions, and %q has no more patterns", s.n, name)
	}
	key := pattern(name, s.n)
	s.n++
	done := make(chan struct{})
	s.callbacks[key], s.ready[key] = notify, done
	var err error
	if key == name {
		err = s.ps.Subscribe(ctx, key)
	} else {
		err = s.ps.PSubscribe(ctx, key)
	}
	start := err == nil && !s.reading
	s.reading = s.reading || start
	s.mu.Unlock()
	if err != nil {
		return err
	}
	if start {
		go s.read()
	}
	select {
	case <-done:
		return nil
	case err := <-s.lost:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// pattern is the i-th of a name: some of its letters stand as sets of one, and which of them are
// the bits of i.
func pattern(name string, i int) string {
	var b strings.Builder
	for k, letter := range []byte(name) {
		if k < 31 && i>>k&1 == 1 {
			b.WriteByte('[')
			b.WriteByte(letter)
			letter = ']'
		}
		b.WriteByte(letter)
	}
	return b.String()
}

func (s *subscriptions) read() {
	for {
		m, err := s.ps.Receive(context.Background())
		if err != nil {
			s.lost <- err
			return
		}
		switch m := m.(type) {
		case *redis.Subscription:
			s.mu.Lock()
			if done := s.ready[m.Channel]; done != nil {
				close(done)
				delete(s.ready, m.Channel)
			}
			s.mu.Unlock()
		case *redis.Message:
			key := m.Channel
			if m.Pattern != "" {
				key = m.Pattern
			}
			s.mu.Lock()
			notify := s.callbacks[key]
			s.mu.Unlock()
			if notify != nil {
				notify([]byte(m.Payload))
			}
		}
	}
}

func (s *subscriptions) close() { s.once.Do(func() { _ = s.ps.Close() }) }
