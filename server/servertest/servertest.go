// Package servertest runs a real signalbox server inside a test. It runs in memory, is ready in a
// fraction of a second, and has a clock that the test moves and faults that the test causes.
//
//	func TestWorker(t *testing.T) {
//		srv := servertest.Start(t)
//		c, err := client.Dial(t.Context(), srv.Addr())
//		...
//		srv.Advance(time.Minute)   // whatever is due on the server within the minute has happened now
//		srv.DropConnections()      // every client loses its link
//		srv.Kill()                 // the server is gone, with what it had not made durable
//		srv.Restart()              // and back, on the same address
//	}
//
// The server's time stands still unless Advance moves it, so a slow machine makes no session expire
// and no test needs to sleep. The timeouts of sessions and of waiting acquires end on that clock.
// Clients live in real time all the same. [RealTime] makes the server do so as well.
package servertest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/server"
	"github.com/signalbox-dev/signalbox/server/servertest/port"
	"github.com/signalbox-dev/signalbox/shard/replica"
)

// Server is a server under test. Its methods are safe for concurrent use. Those that stop or start
// it may fail the test, so only the test's own goroutine may call them.
type Server struct {
	t     testing.TB // nil for New
	opt   options
	clock *replica.ManualClock // nil in real time
	disk  *replica.MemoryDisk  // nil on a folder
	raft  string               // on a folder
	proxy *proxy
	// of a cluster: connects the instance with the others, or cuts it off and loses what is in
	// flight; nil outside a cluster
	setPlugged func(in bool)
	log        *testLog

	mu      sync.Mutex // held while the server starts, stops, or advances
	current *server.Server
	admin   string // address, the same after a restart
	closed  bool
}

// defaultShards is the number of data shards without Shards. Outside of tests it depends on the
// machine.
const defaultShards = 4

// Option changes how a server runs.
type Option func(*options)

type options struct {
	config   []func(*server.Config)
	realTime bool
	dir      string
	rtt      time.Duration
}

// RealTime lets the server's time pass by itself. Advance is then not available.
func RealTime() Option { return func(o *options) { o.realTime = true } }

// Shards sets the number of data shards; default 4, on every machine. Each costs a little of the
// start.
func Shards(n int) Option { return Config(func(c *server.Config) { c.Shards = n }) }

// Folder keeps the data on disk, with every sync that production does; default is memory. Kill then
// loses nothing, because the kernel keeps what the process has written. What the server logs while
// Kill ends it stays too, such as detaches of its clients.
func Folder(dir string) Option { return func(o *options) { o.dir = dir } }

// Config changes the server's configuration before each start. Addresses, disk and clock are set by
// this package.
func Config(change func(*server.Config)) Option {
	return func(o *options) { o.config = append(o.config, change) }
}

// startTimeout bounds a start, for machines that are busy with many tests.
const startTimeout = 60 * time.Second

// roundTrip is the raft engine's unit of time. An election takes 10 to 20 of them, and nothing can
// be served before it.
const roundTrip = 2 * time.Millisecond

// Start runs a server until the test ends. It fails the test if the server does not start.
func Start(t testing.TB, opts ...Option) *Server {
	t.Helper()
	s := newServer(t, opts)
	t.Cleanup(s.Close)
	s.open()
	return s
}

// New runs a server outside a test, for examples and programs. It panics if the server does not
// start. The caller closes it.
func New(opts ...Option) *Server {
	s := newServer(nil, opts)
	s.open()
	return s
}

func newServer(t testing.TB, opts []Option) *Server {
	s := &Server{t: t, log: newTestLog(t)}
	for _, o := range opts {
		o(&s.opt)
	}
	if !s.opt.realTime {
		s.clock = replica.NewManualClock(time.Now())
	}
	if s.opt.dir == "" {
		s.disk = replica.NewMemoryDisk()
	}
	return s
}

// open takes the address and starts the server for the first time.
func (s *Server) open() {
	s.mu.Lock()
	defer s.mu.Unlock()
	var err error
	if s.proxy, err = newProxy(); err != nil {
		s.fail("take an address: %v", err)
		return
	}
	if s.admin, err = port.Free(); err != nil {
		s.fail("find a free address: %v", err)
		return
	}
	if s.disk == nil {
		if s.raft, err = port.Free(); err != nil {
			s.fail("find a free address: %v", err)
			return
		}
	}
	s.start()
}

func (s *Server) start() {
	if err := s.launch(); err != nil {
		s.fail("start: %v", err)
	}
}

// launch starts the server. mu is held.
func (s *Server) launch() error {
	cfg := server.Config{
		Name:   "servertest",
		Listen: "127.0.0.1:0", Advertise: s.proxy.addr(), Raft: s.raft, Admin: cmp.Or(s.admin, "127.0.0.1:0"),
		DataDir: s.opt.dir, Disk: s.disk,
		RTT:    cmp.Or(s.opt.rtt, roundTrip),
		Shards: defaultShards,
		Logger: s.log.logger(),
	}
	if s.clock != nil {
		cfg.Clock = s.clock
	}
	for _, change := range s.opt.config {
		change(&cfg)
	}
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	run, err := server.Start(ctx, cfg)
	if err != nil {
		return err
	}
	s.current = run
	s.proxy.setBackend(run.Addr())
	return nil
}

// Addr is the address for clients. It stays the same for the life of s, through restarts.
func (s *Server) Addr() string { return s.proxy.addr() }

// AdminAddr is the address of metrics, health and profiles. It stays the same through restarts.
func (s *Server) AdminAddr() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.admin
}

// Running reports whether the server runs. It does except between Kill or Stop and Restart.
func (s *Server) Running() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.current != nil
}

// Stop stops the server as an operator would: it answers requests in progress and sends clients a
// goodbye.
func (s *Server) Stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stop()
}

func (s *Server) stop() {
	if s.current == nil {
		return
	}
	err := s.current.Shutdown(context.Background())
	if errors.Is(err, server.ErrClosing) { // the machine is busy
		<-s.current.Done()
		err = s.current.Err()
	}
	s.current = nil
	s.proxy.setBackend("")
	if err != nil {
		s.fail("stop: %v", err)
	}
}

// Kill ends the server abruptly, as a power failure does. Clients see their connections break, and
// what was not synced to the disk is lost. Nothing is logged of the end: sessions that were attached
// here are attached still when the next leader takes over.
func (s *Server) Kill() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.current == nil {
		return
	}
	s.proxy.freeze() // and not broken yet: the server would log that its clients are gone
	if s.setPlugged != nil {
		s.setPlugged(false) // before the power goes: what the instance sends afterwards is not durable
		defer s.setPlugged(true)
	}
	if s.disk != nil {
		s.disk.PowerLoss()
	}
	s.proxy.setBackend("")
	err := s.current.Close()
	s.current = nil
	if s.disk != nil {
		s.disk.PowerBack()
	}
	if err != nil {
		s.fail("kill: %v", err)
	}
}

// Restart starts the server again on the same data and the same addresses. A running server is
// stopped first. Restart returns when every shard is served.
func (s *Server) Restart() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		s.fail("restart: the server was closed")
		return
	}
	s.stop()
	s.start()
}

// Close ends the server for good. Start registers it as a cleanup of the test.
func (s *Server) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	s.closed = true
	defer s.log.close()
	if s.proxy != nil {
		s.proxy.close()
	}
	if s.current != nil {
		err := s.current.Close()
		s.current = nil
		if err != nil {
			s.fail("close: %v", err)
		}
	}
}

func (s *Server) fail(format string, args ...any) { fail(s.t, format, args...) }

// fail fails the test, or panics outside a test.
func fail(t testing.TB, format string, args ...any) {
	if t == nil {
		panic("servertest: " + fmt.Sprintf(format, args...))
	}
	t.Helper()
	t.Fatalf("servertest: "+format, args...)
}
