package peer

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"time"
)

// Config configures a Transport. Advertise is required.
type Config struct {
	// Advertise is host:port where other instances reach this one, at most 255 bytes. It is the
	// instance's name for its peers.
	Advertise string
	// Listen is host:port to listen on; default Advertise.
	Listen string
	// Network makes connections; default [TCP]. For encryption, use a network whose connections are
	// TLS.
	Network Network
	// Tokens are secrets of the cluster's instances: see [Transport.SetTokens]. Without one, only
	// this process itself can connect.
	Tokens [][]byte
	// Cluster returns the cluster's id, at most 255 bytes, or "" while it is unknown. Instances of
	// different clusters reject each other. It must be quick and safe for concurrent use. Default:
	// never known.
	Cluster func() string
	// Stopped reports whether the instance at an address has stopped as planned. That it cannot be
	// reached is no warning then. It must be quick and safe for concurrent use. Default: none has.
	Stopped func(address string) bool
	// Logger is the transport's logger; default slog.Default().
	Logger *slog.Logger
	// Limits bounds the transport's resources; zero fields get their defaults.
	Limits Limits
}

// Limits bounds memory, connections and waiting times. The zero value selects the defaults.
type Limits struct {
	Connections       int // inbound, together; default 1024. More are closed at once
	Handshakes        int // of them not authenticated yet; default 128. One more closes the oldest
	HandshakesPerHost int // of them from one host; default 16. One more closes that host's oldest
	// addresses with pending messages and calls; default 1024. For others messages are lost, calls
	// rejected
	Peers            int
	QueueMessages    int           // messages and calls waiting for one peer; default 4096. More are lost or rejected
	QueueBytes       int           // the same in bytes; default 16 MiB
	Payload          int           // bytes of a message or body; default 8 MiB, at most 64 MiB
	Handlers         int           // concurrent calls of one peer; default 256. More get OVERLOADED
	SnapshotRate     int           // bytes of snapshots sent per second, to all peers together; default 128 MiB
	HandshakeTimeout time.Duration // for the whole handshake; default 5 s
	DialTimeout      time.Duration // for a connection; default 5 s
	WriteTimeout     time.Duration // for a write of up to 256 KiB; default 5 s
	KeepAlive        time.Duration // period of keep-alives; default 2 s. After three missed ones a connection is dead
	IdleTimeout      time.Duration // without message or call, before their connection is closed; default 1 min
	BackoffMin       time.Duration // before the second dial; doubles with each failure, with jitter; default 50 ms
	BackoffMax       time.Duration // default 2 s
}

const (
	maxName             = 255
	maxPayload          = 64 << 20
	maxRaftFrame        = 72 << 20 // mostly 1 MiB; an entry that is larger is a message of its own
	maxChunk            = 4 << 20  // the engine cuts snapshots into 2 MiB
	maxChunkWait        = 60 * time.Second
	maxMissedKeepAlives = 3 // keep-alives missed until a connection is dead
)

func setDefault[T int | time.Duration](v *T, def T) { *v = cmp.Or(max(*v, 0), def) }

func (l *Limits) setDefaults() {
	setDefault(&l.Connections, 1024)
	setDefault(&l.Handshakes, 128)
	setDefault(&l.HandshakesPerHost, 16)
	setDefault(&l.Peers, 1024)
	setDefault(&l.QueueMessages, 4096)
	setDefault(&l.QueueBytes, 16<<20)
	setDefault(&l.Payload, 8<<20)
	setDefault(&l.Handlers, 256)
	setDefault(&l.SnapshotRate, 128<<20)
	setDefault(&l.HandshakeTimeout, 5*time.Second)
	setDefault(&l.DialTimeout, 5*time.Second)
	setDefault(&l.WriteTimeout, 5*time.Second)
	setDefault(&l.KeepAlive, 2*time.Second)
	setDefault(&l.IdleTimeout, time.Minute)
	setDefault(&l.BackoffMin, 50*time.Millisecond)
	setDefault(&l.BackoffMax, 2*time.Second)
	l.Payload = min(l.Payload, maxPayload)
	l.BackoffMax = max(l.BackoffMin, l.BackoffMax)
}

// deadAfter is how long a connection may be silent.
func (l *Limits) deadAfter() time.Duration { return maxMissedKeepAlives * l.KeepAlive }

// normalize gives an address the same form as the raft engine does.
func normalize(address string) string { return strings.ToLower(strings.TrimSpace(address)) }

// checkAddress returns an error unless address is a valid host:port.
func checkAddress(address string) error {
	if len(address) > maxName {
		return fmt.Errorf("address has %d bytes; at most %d are allowed", len(address), maxName)
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil || host == "" || port == "" {
		return fmt.Errorf("address %q is not host:port", address)
	}
	return nil
}

func (c *Config) setDefaults() error {
	c.Advertise = normalize(c.Advertise)
	if c.Advertise == "" {
		return errors.New("the address for the other instances is not set; give host:port")
	}
	if err := checkAddress(c.Advertise); err != nil {
		return err
	}
	c.Listen = cmp.Or(c.Listen, c.Advertise)
	c.Network = cmp.Or(c.Network, TCP())
	if c.Cluster == nil {
		c.Cluster = func() string { return "" }
	}
	if c.Stopped == nil {
		c.Stopped = func(string) bool { return false }
	}
	c.Logger = cmp.Or(c.Logger, slog.Default())
	c.Limits.setDefaults()
	return nil
}
