package server

import (
	"cmp"
	"fmt"
	"log/slog"
	"math"
	"net"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server/auth"
	"github.com/signalbox-dev/signalbox/server/backup"
	"github.com/signalbox-dev/signalbox/server/certs"
	"github.com/signalbox-dev/signalbox/server/failuredetector"
	"github.com/signalbox-dev/signalbox/server/peer"
	"github.com/signalbox-dev/signalbox/server/release"
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
	DefaultTier    = "default"
)

// MemoryTarget is the share of Limits.MaxMemory that the collector should keep the process in, in
// hundredths. Near it collections are frequent, so the size of the live heap is up to date when it
// matters.
const MemoryTarget = 80

// minMemory is the least memory with which an instance is of use.
const minMemory = 256 << 20

// Off as an address opens no listener.
const Off = "off"

// Config of an instance. The zero value works: a durable instance on loopback addresses that keeps
// its data in ./signalbox-data.
type Config struct {
	// DataDir is the folder of the log and the snapshots, made with mode 0700 if it is missing. One
	// server at a time may use it.
	DataDir string

	// Listen is the address for clients, Raft the one for other instances, Admin the one for
	// metrics, health and profiles. A port of 0 picks a free one, except for Raft, which a folder
	// keeps for good. Admin may be Off. It has no authentication: keep it on a loopback or a
	// guarded network.
	Listen, Raft, Admin string

	// AdminHosts are names, without ports, under which Admin is reached, beside IP addresses, the
	// machine's name and those of the other addresses. A request for another name is refused.
	AdminHosts []string

	// TLSListen is the address for clients that use TLS; default Off. With it, TLS is needed, and
	// Listen may be Off. A client gets the other instances' addresses for its own kind of
	// connection only.
	TLSListen string

	// TLS are the files of that listener's certificate, and of the authority that signs clients'
	// certificates. Changed files count for new connections within seconds.
	TLS certs.Files

	// ClusterTLS are the files for the connections between instances. With them, each end shows a
	// certificate that CA has signed and that is valid for the host that was dialled; the join
	// token is proved as well. All instances of a cluster must have such files, or none. Changed
	// files count for new connections within seconds.
	ClusterTLS certs.Files

	// ConsoleTLS are the files for a console that the program serves beside the instance: see
	// [Server.ConsoleTLS]. HTTPTLS are those for its locks by HTTP. Changed files count for new
	// connections within seconds.
	ConsoleTLS, HTTPTLS certs.Files

	// Advertise is the address at which clients connect, host:port; default Listen. Set it if
	// clients reach the instance by another one: if it listens on all interfaces, behind a proxy,
	// or in a container. TLSAdvertise is the same for TLSListen.
	Advertise, TLSAdvertise string

	// Name is the name of the instance for people and operators' verbs, unique in its cluster.
	// Default: the host's name for the first instance; for one that joins, its replicaset's name
	// with a number.
	Name string

	// Cluster is the name of the cluster. A new cluster gets it, and an instance joins no other.
	// Empty: any.
	Cluster string

	// Peers are raft addresses of instances, host:port. Through them an instance with an empty
	// folder finds its cluster, or agrees with others on the founder. Any two instances must have
	// one in common. Without peers an empty folder becomes a cluster of its own; a used folder
	// knows its cluster.
	Peers []string

	// RaftAdvertise is the address at which other instances connect, host:port; default Raft. It
	// may change, but not to that of another instance.
	RaftAdvertise string

	// JoinToken is the secret that all instances of a cluster share, 16 to 1024 bytes. An instance
	// with it is admitted, and learns the keys that sign sessions' tickets. It is needed with
	// Peers. Without one, an instance that makes a cluster of its own generates one, and keeps it
	// in the file join-token of its data folder.
	//
	// While the token is rotated it is two lines: the first is shown to others, and both are
	// accepted.
	JoinToken string
	// JoinTokenFile, if not empty, is the file from which JoinToken was read. It is read again when
	// it changes, as the file of the data folder is.
	JoinTokenFile string

	// Version is the binary's, major.minor.patch; default that of release.Current. Instances of a
	// cluster may have two neighbouring minor versions.
	Version string

	// IssuerPeriod is how often keys of trusts are fetched; default 15 minutes, and a minute after
	// a failure or when a token names an unknown key. Tests shorten it.
	IssuerPeriod time.Duration

	// Network carries messages between instances; default TCP. Tests replace it.
	Network peer.Network

	// Tier is the class of the instance, one of those of the cluster; default "default".
	Tier string

	// Tiers are the tiers of a new cluster, for good; default: Tier alone. Each tier with buckets
	// has the data of the coordination nodes that are created in it, which is the first of them
	// unless the creator names another. Instances of a tier without buckets, the arbiters, hold no
	// data. At least one tier has buckets, and at least one votes in the meta shard. An instance of
	// a tier that votes and has buckets makes the cluster, if there is such a tier; of one that
	// votes otherwise. All instances that start before the cluster is made need the same tiers;
	// those that join later need none. See ParseTier.
	Tiers []meta.TierSpec

	// FailureDomain are labels of the parts that may fail together with this instance, such as DC:
	// MSK, RACK: R1. Case does not matter. A replicaset does not get two instances with a value in
	// common. An instance that joins needs all keys that the cluster uses. At most 32 labels; key
	// and value up to 256 bytes.
	FailureDomain map[string]string

	// ReplicationFactor is the number of instances that host each shard, 1..64, if this instance
	// makes the cluster and Tiers do not say otherwise; default 1. Afterwards the cluster's own
	// counts.
	ReplicationFactor int

	// OfflineAfter is how long an instance may be out of reach before the cluster goes on without
	// it, 500 ms to 10 min; default 5 s. A shorter time means faster failover, and more of it
	// without need. The value of the meta shard's leader counts: give all instances the same.
	OfflineAfter time.Duration

	// ShutdownTimeout bounds a graceful stop, with the drain of leadership and votes, 100 ms to
	// 10 min; default 3 s.
	ShutdownTimeout time.Duration
	// StopWait bounds [Server.AwaitNotNeeded], 0 (it does not wait) to 30 minutes.
	StopWait time.Duration

	// Audit is the target of the audit log, one JSON object a line: a file, made with mode 0600 and
	// appended to, or "stderr"; default: no audit log.
	Audit string

	// MetricsNames is which names metrics contain, which anybody who reaches Admin can read: "on",
	// "nodes", "off", or "auto", which is off while auth is on and else on. Default "auto". Only with
	// "on" there are series of semaphores and rollouts; with "off" those of nodes have the node's
	// number in place of its path.
	MetricsNames string

	// Shards is the number of data shards of each replicaset, 1..64, if this instance makes the
	// cluster; default DefaultShards of its cores and ReplicationFactor. Afterwards the cluster's
	// own counts, which operators change. More shards use more cores and syncs; in a cluster ten
	// of them cost an idle instance about 0.5 % of a core.
	Shards int

	// Buckets is the number of buckets of a new folder; default 4096. Only tests want fewer.
	Buckets uint32

	Limits Limits

	// RTT is the log engine's unit of time, in whole milliseconds, at most 1 s; default 100 ms. A
	// shard's leader sends a heartbeat every RTT, and a replica that has heard none for 10 to 20 of
	// them stands for election. Give all instances the same: one with a shorter time disturbs the
	// leaders of the others. Below 10 ms is for tests, since then each late write of a disk is an
	// election.
	RTT time.Duration

	// Logger must not wait for who reads the log: event loops use it too. LogDropped is how many of
	// its lines were dropped, for metrics; nil: none.
	Logger     *slog.Logger
	LogDropped func() uint64

	// Clock and Memory are for embedding and tests. With Memory nothing survives the process.
	Clock  replica.Clock
	Memory bool
	// Disk is a memory disk that outlives the server, for tests that start one again. It implies
	// Memory.
	Disk *replica.MemoryDisk

	// Existing refuses a data folder without an instance in it, which would otherwise make a new
	// cluster or join one.
	Existing bool

	restore     *backup.Source // the backup that the instance's tier begins with, see Restore
	keepClients bool           // of the restored cluster

	// Auth turns auth on, if this instance makes the cluster: clients show tokens, or certificates
	// over TLS, and have the rights that administrators have granted. AdminToken is the first
	// administrator's token, 16 to 1024 bytes; by default it is generated and kept in the file
	// admin-token of the data folder, with mode 0600. Both have no effect in a cluster that exists:
	// administrators turn auth on and off there.
	Auth       bool
	AdminToken string

	// Authenticator and Authorizer decide who a client is and what it may do. Default: by the
	// cluster's log. Until auth is turned on, every client may do everything.
	Authenticator auth.Authenticator
	Authorizer    auth.Authorizer
}

// Limits bound the resources that clients can use. A zero field is its default.
type Limits struct {
	// MaxConnections is the number of clients that may be connected; default 100,000, and always
	// far enough below the limit on open files for the log's own files. One more is closed at once.
	MaxConnections int

	// MaxConnectionsPerAddress is the same of one client address, or one IPv6 network of 64 bits;
	// default 0: unlimited.
	MaxConnectionsPerAddress int

	// MaxMemory bounds the memory that clients can make the process use, in bytes, 256 MiB or more;
	// default 0: unlimited. When the live heap reaches three fifths of it, requests that need more
	// memory are answered OVERLOADED until it is less. The rest is for garbage, stacks, buffers and
	// the log. A program that sets it should have the collector aim at MemoryTarget of it.
	MaxMemory int64

	// Window is the number of requests of a connection that may be unanswered; default 4096. One
	// more is answered OVERLOADED.
	Window int

	// MaxSessionsPerConnection bounds the sessions attached or presented on one connection; default
	// 262,144. One more is answered OVERLOADED.
	MaxSessionsPerConnection int

	// MaxData is the largest data of a semaphore or an acquire in bytes; default and maximum 1 MiB.
	MaxData int

	// MaxWatchers is the number of watches of a semaphore, one-shot ones and streams together, and
	// of streams of a prefix; default 100,000. MaxStreams and MaxWatches bound the streams and the
	// armed one-shot watches of a connection in each shard; defaults 1,024 and 65,536. One more is
	// answered OVERLOADED.
	MaxWatchers, MaxStreams, MaxWatches int

	// OutSoft and OutHard bound the bytes that wait for a connection to read them. Above OutSoft
	// (default 1 MiB) streams stop and reads are answered OVERLOADED. Above OutHard (default 4
	// MiB), or when a byte has waited for longer than OutAge (default 10 s), the connection is
	// closed.
	OutSoft, OutHard int
	OutAge           time.Duration

	// OutTotal bounds the bytes that wait for all slow readers together; default 64 MiB. Above it
	// OutSoft is 64 KiB for every connection. A client that reads does not notice.
	OutTotal int

	// InTotal bounds the bytes of incomplete frames of all connections together, those of frames
	// below 4 KiB apart; default 256 MiB. The connection that passes it is closed with OVERLOADED.
	InTotal int

	// HelloTimeout bounds the wait for a connection's hello (default 5 s), FrameTimeout the time
	// from the first to the last byte of a frame (default 10 s), and IdleTimeout the silence of a
	// connection (default 60 s; longer if its sessions' keep-alives are).
	HelloTimeout, FrameTimeout, IdleTimeout time.Duration

	// NodeOps is the number of changes of coordination nodes that may be under way; default 64. One
	// more is answered OVERLOADED.
	NodeOps int

	// MaxSeries bounds the metric series made from names of semaphores and ids of sessions; default
	// 1,000. The metrics report when some are left out.
	MaxSeries int
}

func orDefault[T comparable](v *T, d T) { *v = cmp.Or(*v, d) }

// lastOfPreviousMajor is the last version before the major version of release.TreeVersion, and
// rises with that. A cluster of that last version takes in an instance of the present one. The zero
// value means no such version.
var lastOfPreviousMajor meta.Version

// version is the binary's, checked before.
func (c *Config) version() meta.Version {
	v, _ := meta.ParseVersion(c.Version)
	return v
}

// checkRanges checks the numbers and times that have a range.
func (c *Config) checkRanges() error {
	const any = math.MaxInt
	l := &c.Limits
	for _, x := range []struct {
		what               string
		value, least, most int
	}{
		{"shards", c.Shards, 0, 64}, {"buckets", int(c.Buckets), 1, 1 << 16},
		{"replication factor", c.ReplicationFactor, 1, maxReplication},
		{"max connections", l.MaxConnections, 1, transport.MaxConnections},
		{"max connections per address", l.MaxConnectionsPerAddress, 0, any},
		{"window", l.Window, 1, any}, {"max data", l.MaxData, 1, protocol.MaxDataLen},
		{"max watchers", l.MaxWatchers, 1, any}, {"max streams", l.MaxStreams, 1, any},
		{"max watches", l.MaxWatches, 1, any},
		{"soft bound of outgoing bytes", l.OutSoft, transport.MinOutSoft, any},
		{"outgoing bound of all connections", l.OutTotal, 1, any},
		{"bound of unfinished frames", l.InTotal, 1, any}, {"limit of node changes", l.NodeOps, 1, any},
		{"limit of metric series", l.MaxSeries, 1, any},
	} {
		switch {
		case x.value < x.least && x.most == any:
			return fmt.Errorf("%s is %d; choose at least %d", x.what, x.value, x.least)
		case x.value < x.least || x.value > x.most:
			return fmt.Errorf("%s is %d; choose %d to %d", x.what, x.value, x.least, x.most)
		}
	}
	for _, x := range []struct {
		what string
		d    time.Duration
	}{
		{"time for what waits to be read", l.OutAge}, {"hello timeout", l.HelloTimeout}, {"frame timeout", l.FrameTimeout},
		{"idle timeout", l.IdleTimeout},
	} {
		if x.d < 0 {
			return fmt.Errorf("%s is %v; it must not be negative", x.what, x.d)
		}
	}
	return nil
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
	orDefault(&c.Version, release.Current().Version)
	orDefault(&c.ReplicationFactor, 1)
	orDefault(&c.OfflineAfter, failuredetector.DefaultOfflineAfter)
	orDefault(&c.RTT, 100*time.Millisecond)
	orDefault(&c.Clock, replica.SystemClock())
	orDefault(&c.Logger, slog.Default())
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
	orDefault(&c.ShutdownTimeout, 3*time.Second)
	if d := c.StopWait; d < 0 || d > maxStopWait {
		return c, fmt.Errorf("stop wait is %v; choose 0s to %v", d, maxStopWait)
	}

	if err := c.checkRanges(); err != nil {
		return c, err
	}
	c.fillTiers()
	switch c.MetricsNames {
	case "auto", "on", "nodes", "off":
	default:
		return c, fmt.Errorf("metrics names is %q; choose auto, on, nodes or off", c.MetricsNames)
	}
	if _, err := meta.ParseVersion(c.Version); err != nil {
		return c, err
	}
	if l.MaxMemory != 0 && l.MaxMemory < minMemory {
		return c, fmt.Errorf("max memory is %d bytes; choose at least %d MiB, or 0 for no bound", l.MaxMemory,
			minMemory>>20)
	}
	if l.OutHard < l.OutSoft {
		return c, fmt.Errorf("outgoing bounds are %d and %d; choose a hard bound that is not below the soft one", l.OutSoft,
			l.OutHard)
	}
	if n := len(c.AdminToken); n != 0 && (n < auth.MinSecretLen || n > auth.MaxSecretLen || !c.Auth) {
		return c, fmt.Errorf("the administrator's token has %d bytes, or auth is not asked for; "+
			"choose %d to %d bytes at random, and ask for auth", n, auth.MinSecretLen, auth.MaxSecretLen)
	}
	if err := c.checkTLS(); err != nil {
		return c, err
	}
	for _, a := range []struct{ what, address string }{{"listen", c.Listen}, {"TLS listen", c.TLSListen},
		{"raft", c.Raft}, {"admin", c.Admin}} {
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
