package replica

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/lni/dragonboat/v4/config"
	"github.com/lni/dragonboat/v4/raftio"
	"github.com/lni/dragonboat/v4/raftpb"
)

// MemoryNet carries the raft messages of hosts in one process, without ports. It can isolate hosts.
type MemoryNet struct {
	mu     sync.RWMutex // held for reading while a message is delivered, so that a closed host gets none
	hosts  map[string]*memoryTransport
	cut    map[string]bool
	oneWay map[[2]string]bool         // from, to
	drop   func(*raftpb.Message) bool // messages to lose besides; may be nil
}

// NewMemoryNet returns a net without hosts.
func NewMemoryNet() *MemoryNet {
	return &MemoryNet{hosts: make(map[string]*memoryTransport), cut: make(map[string]bool),
		oneWay: make(map[[2]string]bool)}
}

// Isolate loses all messages from and to the host with this raft address, or ends that.
func (n *MemoryNet) Isolate(address string, on bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.cut[address] = on
}

// Cut loses the messages from one host to another, in this direction only, or ends that.
func (n *MemoryNet) Cut(from, to string, on bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.oneWay[[2]string{from, to}] = on
}

// dropMessages loses the messages that a function selects; nil: none.
func (n *MemoryNet) dropMessages(which func(*raftpb.Message) bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.drop = which
}

// Create is called by the engine when the host opens.
func (n *MemoryNet) Create(
	c config.NodeHostConfig, messages raftio.MessageHandler, chunks raftio.ChunkHandler,
) raftio.ITransport {
	return &memoryTransport{net: n, address: c.RaftAddress, messages: messages, chunks: chunks}
}

// Validate accepts any address.
func (n *MemoryNet) Validate(address string) bool { return address != "" }

// receiver returns the receiver of a message, with mu held for reading until release is called.
func (n *MemoryNet) receiver(from, to string) (t *memoryTransport, release func(), err error) {
	n.mu.RLock()
	t = n.hosts[to]
	if t == nil || n.cut[from] || n.cut[to] || n.oneWay[[2]string{from, to}] {
		n.mu.RUnlock()
		return nil, nil, errNoHost
	}
	return t, n.mu.RUnlock, nil
}

type memoryTransport struct {
	net      *MemoryNet
	address  string
	messages raftio.MessageHandler
	chunks   raftio.ChunkHandler
}

func (t *memoryTransport) Name() string { return "memory" }

func (t *memoryTransport) Start() error {
	t.net.mu.Lock()
	defer t.net.mu.Unlock()
	if t.net.hosts[t.address] != nil {
		return fmt.Errorf("another host of this net has the address %s", t.address)
	}
	t.net.hosts[t.address] = t
	return nil
}

func (t *memoryTransport) Close() error {
	t.net.mu.Lock()
	defer t.net.mu.Unlock()
	if t.net.hosts[t.address] == t {
		delete(t.net.hosts, t.address)
	}
	return nil
}

func (t *memoryTransport) GetConnection(_ context.Context, target string) (raftio.IConnection, error) {
	return t.connect(target)
}

func (t *memoryTransport) GetSnapshotConnection(
	_ context.Context, target string,
) (raftio.ISnapshotConnection, error) {
	return t.connect(target)
}

func (t *memoryTransport) connect(target string) (*memoryConn, error) {
	_, release, err := t.net.receiver(t.address, target)
	if err != nil {
		return nil, err
	}
	release()
	return &memoryConn{t, target}, nil
}

type memoryConn struct {
	from   *memoryTransport
	target string
}

func (c *memoryConn) Close() {}

// SendMessageBatch delivers a copy: the sender goes on to use its entries.
func (c *memoryConn) SendMessageBatch(batch raftpb.MessageBatch) error {
	to, release, err := c.from.net.receiver(c.from.address, c.target)
	if err != nil {
		return err
	}
	defer release()
	var own raftpb.MessageBatch
	raftpb.MustUnmarshal(&own, raftpb.MustMarshal(&batch))
	if lose := to.net.drop; lose != nil {
		own.Requests = slices.DeleteFunc(own.Requests, func(m raftpb.Message) bool { return lose(&m) })
	}
	to.messages(own)
	return nil
}

func (c *memoryConn) SendChunk(chunk raftpb.Chunk) error {
	to, release, err := c.from.net.receiver(c.from.address, c.target)
	if err != nil {
		return err
	}
	defer release()
	var own raftpb.Chunk
	raftpb.MustUnmarshal(&own, raftpb.MustMarshal(&chunk))
	if !to.chunks(own) {
		return errors.New("the receiver rejected the snapshot")
	}
	return nil
}
