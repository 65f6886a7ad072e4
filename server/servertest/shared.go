package servertest

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server/servertest/await"
)

// Shared is one server for tests of a package that need no more of it than an address. It starts
// with the first of them, and its time passes by itself. Each test has a coordination node of its
// own, so the tests can run at once:
//
//	var shared = servertest.NewShared()
//
//	func TestMain(m *testing.M) {
//		code := m.Run()
//		shared.Close()
//		os.Exit(code)
//	}
//
//	func TestWorker(t *testing.T) {
//		t.Parallel()
//		node := shared.Node(t)
//		c, err := client.Dial(t.Context(), node.Addr())
//		...
//		defer c.Close()
//		s, err := c.Session(t.Context(), node.Path())
//	}
//
// A test that moves the clock, causes faults, or looks at all of the server uses Start. So does one
// that expects a version or a fencing token to have a certain value: other nodes' are between them.
type Shared struct {
	opts  []Option
	start sync.Once
	srv   *Server // nil before the first test
	nodes atomic.Int64
}

// Node is the coordination node of a test.
type Node struct {
	addr, path string
}

// NewShared returns a server that is yet to start.
func NewShared(opts ...Option) *Shared { return &Shared{opts: append(opts, RealTime())} }

// Node creates a node for a test. When the test is over, it fails if sessions of the node do not
// end: their clients must be closed by then.
func (s *Shared) Node(t testing.TB) *Node {
	t.Helper()
	s.start.Do(func() { s.srv = New(s.opts...) })
	governor := s.srv.running().Parts().Governor
	n := &Node{addr: s.srv.Addr(), path: fmt.Sprintf("/test-%d", s.nodes.Add(1))}
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	if _, err := governor.CreateNode(ctx, &protocol.NodeCreate{Path: n.path}); err != nil {
		fail(t, "create a node: %v", err)
	}
	t.Cleanup(func() {
		await.Seen(t, "the end of the sessions that the test has left in its node; close their clients",
			func() (left string, ended bool) {
				has, err := governor.DeleteNode(context.Background(), &protocol.NodeDelete{Path: n.path, DryRun: true})
				return has.String(), err == nil && has.Sessions == 0
			})
	})
	return n
}

// Close ends the server, after the last test.
func (s *Shared) Close() {
	if s.srv != nil {
		s.srv.Close()
	}
}

// Addr is the address for clients.
func (n *Node) Addr() string { return n.addr }

// Path is the path of the node.
func (n *Node) Path() string { return n.path }
