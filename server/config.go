package server

import (
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server/auth"
	"github.com/signalbox-dev/signalbox/server/backup"
	"github.com/signalbox-dev/signalbox/server/certs"
	"github.com/signalbox-dev/signalbox/server/failuredetector"
	"github.com/signalbox-dev/signalbox/server/peer"
	"github.com/signalbox-dev/signalbox/server/transport"
	"github.com/signalbox-dev/signalbox/shard/meta"
	"github.com/signalbox-dev/signalbox/shard/replica"
)

// Defaults of Config.
const (
	DefaultDataDir = "signalbox-data"
	DefaultListen  = "127.0.0.1:7070"
	DefaultRaft    = "127.0.0.1:7071"
	DefaultAdmin   = "127.0.0.1:7072"
	DefaultShards  = 4
	DefaultVersion = "0.1.0"
	DefaultTier    = "default"
)

// Off as an address opens no listener.
const Off = "off"

// Config of an instance. The zero value works: a durable instance on loopback addresses that keeps its data in ./signalbox-data.
type Config struct {
	// DataDir is the folder of the log and the snapshots, made with mode 0700 when missing. One server at a time may use it.
	DataDir string

	// Listen is the address for clients, Raft the one for other instances, Admin the one for metrics, health and profiles. A port of 0 picks a free
	// one, except for Raft, which a folder keeps for good. Admin may be Off. Admin has no authentication: keep it on a loopback or a guarded network.
	Listen, Raft, Admin string

	// TLSListen is the address for clients that use TLS, beside the plain one; default Off. With it, TLS is needed, and Listen may be Off. One who connects over TLS is
	// told of the other instances' addresses for TLS only, and one who does not of the plain ones only.
	TLSListen string

	// TLS are the files of that listener's certificate, and of the authority that signs clients'. Changed files count for new connections within seconds.
	TLS certs.Files

	// ClusterTLS are the files for the connections between instances: with them, both ends of each show a certificate that CA has signed and that is good for the host
	// that was dialled, beneath the proof of the join token. All instances of a cluster must have it, or none. Changed files count for new connections within seconds.
	ClusterTLS certs.Files

	// Advertise is the address clients are told to connect to, host:port; default the one listened on. It is needed where that is not how clients
	// reach it: when listening on all interfaces, behind a proxy, in a container.
	Advertise string

	// TLSAdvertise is that for TLS; default the one listened on.
	TLSAdvertise string

	// Name is what the instance is called by people and by operators' verbs, unique in its cluster; by default the host's name for the first instance, and the
	// replicaset's with a number for one that joins.
	Name string

	// Cluster is the name of the cluster: a new one is called so, and an instance joins no other. Empty names none.
	Cluster string

	// Peers are raft addresses of instances, host:port, through which an instance with an empty folder finds its cluster, or agrees with others who makes it. Any
	// two instances must have one in common. Without peers an empty folder becomes a cluster of its own; a folder that has been used knows its cluster.
	Peers []string

	// RaftAdvertise is the address other instances are told to connect to, host:port; default Raft. It is what Advertise is for clients, and cannot change to that of
	// another instance.
	RaftAdvertise string

	// JoinToken is the secret that all instances of a cluster share, 16 to 1024 bytes: who has it is let in, and learns the keys that sign sessions' tickets. It is
	// needed with Peers. An instance that makes a cluster of its own without one makes one up, and keeps it in the file join-token of its data folder.
	JoinToken string

	// Version is the binary's, major.minor.patch; default DefaultVersion. Instances of a cluster may be of two neighbouring minor versions.
	Version string

	// Network carries what instances say to each other, default TCP: for tests.
	Network peer.Network

	// Tier is the class of the instance, one of those the cluster was made with; default "default".
	Tier string

	// FailureDomain says what the instance shares its fate with, like DC: MSK, RACK: R1; keys and values count without regard to case. A replicaset is not filled with
	// instances that have a value in common. Who joins needs all keys that are in use in the cluster; at most 32, key and value up to 256 bytes.
	FailureDomain map[string]string

	// ReplicationFactor is how many instances host each shard of the tier "default", 1..64, when this instance makes the cluster; default 1. Afterwards the
	// cluster's own counts.
	ReplicationFactor int

	// OfflineAfter is how long an instance may be out of reach before the cluster moves on without it, 500 ms to 10 min; default 5 s. Shorter is faster failover, and
	// more of it without need. That of the meta shard's leader counts: give all instances the same.
	OfflineAfter time.Duration

	// ShutdownTimeout bounds a graceful stop, hand-over of leadership and votes included, 100 ms to 10 min; default 3 s, or Limits.DrainTimeout.
	ShutdownTimeout time.Duration

	// Audit is where what happens to the cluster is written, a JSON object a line: a file, made with mode 0600 and appended, or "stderr"; default nowhere.
	Audit string

	// MetricsNames says whether metrics have the names of semaphores, rollouts and nodes in them,
	// which anybody who reaches Admin can read: "on", "off", or the default "auto", which is off
	// while auth is on. Without names there are no series of semaphores and rollouts, and those of
	// nodes have the node's number.
	MetricsNames string

	// Shards is the number of data shards, 1..64, of a new folder; default 4. More shards use more
	// cores and fsyncs, and in a cluster ten of them cost an idle instance about 0.5 % of a core.
	// It cannot be changed later: a number that differs from the folder's is refused; 0 takes the
	// folder's.
	Shards int

	// Buckets is the number of buckets of a new folder; default 4096, and only tests want fewer.
	Buckets uint32

	Limits Limits

	// RTT is the log engine's unit of time, in whole milliseconds, default 100 ms, at most 1 s: a shard's leader says that it is there every RTT, and a replica that has heard nothing
	// for 10 to 20 of them stands for election. All instances are to have the same: one with a shorter time disturbs the leaders of the others. Below 10 ms is for tests,
	// since every late write of a disk then is an election.
	RTT time.Duration

	// Clock, Logger and Memory are for embedding and tests. Memory keeps everything in memory: nothing survives the process.
	Clock  replica.Clock
	Logger *slog.Logger
	Memory bool
	// Disk is a memory disk that outlives the server, for tests that start one again; it implies Memory.
	Disk *replica.MemoryDisk

	restore *backup.Source // what the first instance of a new cluster begins with, see Restore

	// Auth, when this instance makes the cluster, turns auth on in it: clients show tokens, or certificates over TLS, and may do what administrators have granted. The first
	// administrator's token is AdminToken, 16 to 1024 bytes, or else made up and kept in the file admin-token of the data folder, with mode 0600. In a cluster that exists it says
	// nothing: administrators turn auth on and off there.
	Auth       bool
	AdminToken string

	// Authenticator and Authorizer decide who a client is and what it may do, in place of what the cluster has in its log. By default that counts: everybody may do everything
	// until auth is turned on.
	Authenticator auth.Authenticator
	Authorizer    auth.Authorizer
}

// Limits bound what clients can make the server hold. A zero field is its default.
type Limits struct {
	// MaxConnections is how many clients may be connected; default 100,000, and always far enough below the limit on open files to leave room for the
	// log's own files. One more is closed at once.
	MaxConnections int

	// MaxConnectionsPerAddress is how many of them one client address may have; default 0: no bound of its own, for many clients may be behind one address.
	MaxConnectionsPerAddress int

	// MaxMemory bounds what clients can make the process hold in all, in bytes, 256 MiB or more; default 0: no bound. When what lives reaches three fifths of it, requests that
	// would have the server hold more are answered OVERLOADED, until it is less; all else goes on. The rest is for garbage, stacks, buffers and the log. Whoever sets it
	// has the collector aim at MemoryTarget of it.
	MaxMemory int64

	// Window is how many requests of a connection may be unanswered; default 4096. One more is answered OVERLOADED.
	Window int

	// MaxSessionsPerConnection bounds the sessions attached or presented on one connection; default 262,144. One more is answered OVERLOADED.
	MaxSessionsPerConnection int

	// MaxData is the largest data of a semaphore or an acquire in bytes; default and maximum 1 MiB.
	MaxData int

	// MaxWatchers is how many watches a semaphore may have, one-shot ones and streams together, and how many streams a prefix; default 100,000. MaxStreams
	// and MaxWatches bound the streams and the armed one-shot watches of a connection in each shard; defaults 1,024 and 65,536. One more is answered OVERLOADED.
	MaxWatchers, MaxStreams, MaxWatches int

	// OutSoft and OutHard bound the bytes that wait for a connection to read them. Above OutSoft (default 1 MiB) streams stop and reads are
	// answered OVERLOADED; above OutHard (default 4 MiB), or when a byte waits for longer than OutAge (default 10 s), it is closed.
	OutSoft, OutHard int
	OutAge           time.Duration

	// OutTotal is how many bytes may wait for all slow readers together before OutSoft is 64 KiB for everybody, until it is less again; default 64 MiB. A client that
	// reads does not notice: next to nothing waits for it.
	OutTotal int

	// InTotal is how many bytes of frames that are not complete yet the server holds for all connections together, those of frames below 4 KiB apart; default 256 MiB. The
	// connection whose bytes pass it is closed with OVERLOADED. Frames complete in a round trip or two, and FrameTimeout ends those that do not.
	InTotal int

	// HelloTimeout is how long a connection may take to say hello (default 5 s), FrameTimeout how long a frame may take from its first to its last byte
	// (default 10 s), IdleTimeout how long a connection may be silent (default 60 s; longer while its sessions' keep-alives are further apart).
	HelloTimeout, FrameTimeout, IdleTimeout time.Duration

	// NodeOps is how many changes of coordination nodes may be under way at a time; default 64. One more is answered OVERLOADED.
	NodeOps int

	// MaxSeries bounds the metric series made from names of semaphores and ids of sessions; default 1,000. The metrics say when it cut.
	MaxSeries int

	// DrainTimeout bounds a graceful stop; default Config.ShutdownTimeout. No need to give both.
	DrainTimeout time.Duration
}

func orDefault[T comparable](v *T, d T) {
	var zero T
	if *v == zero {
		*v = d
	}
}

// version is the binary's, checked before.
func (c *Config) version() meta.Version {
	v, _ := meta.ParseVersion(c.Version)
	return v
}

// withDefaults fills in defaults and checks ranges.
func (c Config) withDefaults() (Config, error) {
	orDefault(&c.DataDir, DefaultDataDir)
	orDefault(&c.Listen, DefaultListen)
	orDefault(&c.TLSListen, Off)
	orDefault(&c.Raft, DefaultRaft)
	orDefault(&c.Admin, DefaultAdmin)
	orDefault(&c.Buckets, protocol.DefaultBuckets)
	orDefault(&c.Tier, DefaultTier)
	orDefault(&c.MetricsNames, "auto")
	orDefault(&c.Version, DefaultVersion)
	orDefault(&c.ReplicationFactor, 1)
	orDefault(&c.OfflineAfter, failuredetector.DefaultOfflineAfter)
	orDefault(&c.RTT, 100*time.Millisecond)
	if c.Clock == nil {
		c.Clock = replica.SystemClock()
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	l := &c.Limits
	orDefault(&l.MaxConnections, 100_000)
	orDefault(&l.Window, 4096)
	orDefault(&l.MaxSessionsPerConnection, 1<<18)
	orDefault(&l.MaxData, protocol.MaxDataLen)
	orDefault(&l.MaxWatchers, 100_000)
	orDefault(&l.MaxStreams, 1024)
	orDefault(&l.MaxWatches, 1<<16)
	orDefault(&l.OutSoft, 1<<20)
	orDefault(&l.OutHard, 4<<20)
	orDefault(&l.OutAge, 10*time.Second)
	orDefault(&l.OutTotal, 64<<20)
	orDefault(&l.InTotal, 256<<20)
	orDefault(&l.HelloTimeout, 5*time.Second)
	orDefault(&l.FrameTimeout, 10*time.Second)
	orDefault(&l.IdleTimeout, 60*time.Second)
	orDefault(&l.NodeOps, 64)
	orDefault(&l.MaxSeries, 1000)
	if d := c.ShutdownTimeout; d != 0 && (d < minShutdown || d > maxClusterPeriod) {
		return c, fmt.Errorf("shutdown timeout is %v; choose %v to %v", d, minShutdown, maxClusterPeriod)
	}
	orDefault(&c.ShutdownTimeout, l.DrainTimeout)
	orDefault(&c.ShutdownTimeout, 3*time.Second)
	orDefault(&l.DrainTimeout, c.ShutdownTimeout)

	for _, d := range []struct {
		what string
		d    time.Duration
	}{
		{"time for what waits to be read", l.OutAge}, {"hello timeout", l.HelloTimeout}, {"frame timeout", l.FrameTimeout}, {"idle timeout", l.IdleTimeout},
		{"drain timeout", l.DrainTimeout},
	} {
		if d.d < 0 {
			return c, fmt.Errorf("%s is %v; it must not be negative", d.what, d.d)
		}
	}
	if l.NodeOps < 1 || l.MaxSeries < 1 {
		return c, fmt.Errorf("limits of node changes and of series are %d and %d; choose at least 1", l.NodeOps, l.MaxSeries)
	}
	switch c.MetricsNames {
	case "auto", "on", "off":
	default:
		return c, fmt.Errorf("metrics names is %q; choose auto, on or off", c.MetricsNames)
	}
	if c.Shards < 0 || c.Shards > 64 {
		return c, fmt.Errorf("shards is %d; choose 1 to 64", c.Shards)
	}
	if c.Buckets < 1 || c.Buckets > 1<<16 {
		return c, fmt.Errorf("buckets is %d; choose 1 to 65536", c.Buckets)
	}
	if _, err := meta.ParseVersion(c.Version); err != nil {
		return c, err
	}
	if l.MaxConnections < 1 || l.MaxConnections > transport.MaxConnections {
		return c, fmt.Errorf("max connections is %d; choose 1 to %d", l.MaxConnections, transport.MaxConnections)
	}
	if l.MaxConnectionsPerAddress < 0 {
		return c, fmt.Errorf("max connections per address is %d; choose 1 or more, or 0 for no bound of its own", l.MaxConnectionsPerAddress)
	}
	if err := checkMaxMemory(l.MaxMemory); err != nil {
		return c, err
	}
	if l.Window < 1 {
		return c, fmt.Errorf("window is %d; choose at least 1", l.Window)
	}
	if l.MaxData < 1 || l.MaxData > protocol.MaxDataLen {
		return c, fmt.Errorf("max data is %d; choose 1 to %d bytes", l.MaxData, protocol.MaxDataLen)
	}
	if l.MaxWatchers < 1 || l.MaxStreams < 1 || l.MaxWatches < 1 {
		return c, fmt.Errorf("limits of watches are %d, %d and %d; choose at least 1", l.MaxWatchers, l.MaxStreams, l.MaxWatches)
	}
	if l.OutSoft < transport.MinOutSoft || l.OutHard < l.OutSoft {
		return c, fmt.Errorf("outgoing bounds are %d and %d; choose at least %d bytes, the hard bound not below the soft one", l.OutSoft, l.OutHard, transport.MinOutSoft)
	}
	if l.InTotal < 1 {
		return c, fmt.Errorf("bound of unfinished frames is %d; choose at least 1 byte", l.InTotal)
	}
	if l.OutTotal < 1 {
		return c, fmt.Errorf("outgoing bound of all connections is %d; choose at least 1 byte", l.OutTotal)
	}
	if n := len(c.AdminToken); n != 0 && (n < auth.MinSecretLen || n > auth.MaxSecretLen || !c.Auth) {
		return c, fmt.Errorf("the administrator's token has %d bytes, or auth is not asked for; choose %d to %d bytes at random, and ask for auth", n, auth.MinSecretLen, auth.MaxSecretLen)
	}
	if err := c.checkTLS(); err != nil {
		return c, err
	}
	for _, a := range []struct{ what, address string }{{"listen", c.Listen}, {"TLS listen", c.TLSListen}, {"raft", c.Raft}, {"admin", c.Admin}} {
		if a.what != "raft" && a.address == Off || a.what == "raft" && c.Network != nil {
			continue
		}
		t, err := net.ResolveTCPAddr("tcp", a.address)
		if err != nil {
			return c, fmt.Errorf("%s address %q is not host:port: %w", a.what, a.address, err)
		}
		if a.what == "raft" && t.Port == 0 && !c.Memory && c.Disk == nil {
			return c, fmt.Errorf("raft address %q has no port; choose one for good, the folder keeps it", a.address)
		}
	}
	return c, c.checkCluster()
}
