// Package settings is the table of the command line's settings: their flags, environment variables,
// defaults and help, and how a value is found. A setting has the value of the first source that has
// one: flags, the environment, a file, the default. The files are the server's configuration and
// the client's, which holds contexts.
package settings

import (
	"slices"
	"strings"
)

// Setting is one line of the settings table: a flag, and where its value comes from when the flag
// is not given. Resolve has the order. The reference page is written from this table.
type Setting struct {
	Flag    string
	Short   string
	Default string
	Help    string // a full sentence: its meaning, its unit, its cost
	Bool    bool
	// List: values separated by commas. The flag may be given several times, and its file form may
	// be a list.
	List     bool
	Scope    Scope
	FlagOnly bool // it has no environment variable
}

// Env is the setting's environment variable, named like its flag; empty for none.
func (s *Setting) Env() string {
	if s.FlagOnly {
		return ""
	}
	return "SIGNALBOX_" + strings.ToUpper(strings.ReplaceAll(s.Flag, "-", "_"))
}

// Scope is the set of verbs that have a setting.
type Scope uint8

// The scopes.
const (
	Client Scope = iota // every verb that talks to a server
	Serve
)

// All is the one table. Keys of configuration files are the flags' names.
var All = slices.Concat(inScope(Client, OfClient), inScope(Serve, OfServe))

func inScope(sc Scope, list []Setting) []Setting {
	for i := range list {
		list[i].Scope = sc
	}
	return list
}

// OfClient are the settings of verbs that talk to a server.
var OfClient = []Setting{
	{Flag: "endpoints", Default: "127.0.0.1:7070",
		Help: "Addresses of instances, separated by commas; one that answers is enough."},
	{Flag: "node", Default: "/default",
		Help: "Path of the coordination node, the namespace of semaphores and sessions."},
	{Flag: "cluster",
		Help: "Id or name of the cluster that is meant; an instance of another one is refused (default: any)."},
	{Flag: "timeout", Default: "15s",
		Help: "How long to try, as a Go duration; then the exit code is 5 if no instance was reached, else 1."},
	{Flag: "session-timeout", Default: "10s",
		Help: "How long the session outlives its last keep-alive, 100ms to 30m. " +
			"Shorter means faster failover and less tolerance for pauses."},
	{Flag: "token-file",
		Help: "File with the token, read again for each connection; without it the client is anonymous."},
	{Flag: "tls", Bool: true,
		Help: "Connect over TLS; the other --tls flags imply it. " +
			"The certificate of each instance must be valid for its host name."},
	{Flag: "tls-ca",
		Help: "PEM file with the CA certificates for the instances' certificates (default: the system's CAs); " +
			"read again for each connection."},
	{Flag: "tls-cert",
		Help: "PEM file with this client's certificate and its chain; read again for each connection."},
	{Flag: "tls-key",
		Help: "File with the private key of --tls-cert."},
	{Flag: "tls-server-name",
		Help: "Name that the instances' certificates must be valid for, instead of the host in the address."},
	{Flag: "output", Short: "o", Default: "table",
		Help: "Output for people (table) or programs (json: one document; jsonl: one line an item). " +
			"Verbs with endless output, such as watches, refuse json."},
	{Flag: "no-color", Bool: true,
		Help: "Disable terminal colors; NO_COLOR works too."},
	{Flag: "context",
		Help: "Context to use from the client's configuration file; see signalbox context."},
	{Flag: "client-config",
		Help: "The client's configuration file (default signalbox/client.yaml in the user's configuration " +
			"folder)."},
}

// OfServe are the settings of an instance.
var OfServe = []Setting{
	{Flag: "config",
		Help: "YAML configuration file; its keys are the names of these flags. Unknown keys are errors."},
	{Flag: "data", Default: "./signalbox-data",
		Help: "Folder of the instance's log and snapshots; created if missing. Only its owner may read it: " +
			"read access of others is removed, write access of others is an error."},
	{Flag: "listen", Default: "127.0.0.1:7070",
		Help: "Address for clients without TLS, or off."},
	{Flag: "listen-tls", Default: "off",
		Help: "Address for clients with TLS, or off. TLS clients learn only TLS addresses of other " +
			"instances, plain clients only plain ones."},
	{Flag: "listen-tls-cert",
		Help: "PEM file with the certificate for --listen-tls and its chain. " +
			"Changed certificate and key files are loaded within seconds, or at SIGHUP."},
	{Flag: "listen-tls-key",
		Help: "File with the private key of --listen-tls-cert."},
	{Flag: "listen-tls-client-ca",
		Help: "File with the CA certificates for client certificates. " +
			"A client with another certificate is rejected."},
	{Flag: "listen-tls-require-client-cert", Bool: true,
		Help: "Reject TLS clients without a certificate; needs --listen-tls-client-ca."},
	{Flag: "advertise-tls",
		Help: "Address that TLS clients connect to (default: the --listen-tls address)."},
	{Flag: "cluster-tls-cert",
		Help: "File with the certificate of this instance for connections between instances, " +
			"in both directions; valid for the host of --raft-advertise. " +
			"Either all instances of a cluster have one, or none."},
	{Flag: "cluster-tls-key",
		Help: "File with the private key of --cluster-tls-cert."},
	{Flag: "cluster-tls-ca",
		Help: "File with the CA certificates for the instances' certificates; the CA should sign no others."},
	{Flag: "raft", Default: "127.0.0.1:7071",
		Help: "Address for raft and RPCs between instances."},
	{Flag: "advertise",
		Help: "Address that clients connect to (default: the --listen address). " +
			"Needed in containers, behind proxies, and when listening on all interfaces."},
	{Flag: "raft-advertise",
		Help: "Address that other instances connect to (default: the --raft address)."},
	{Flag: "cluster",
		Help: "Name of the cluster that this instance creates or joins."},
	{Flag: "instance",
		Help: "Name of this instance, unique in the cluster (default: " +
			"the host name, or one assigned when it joins)."},
	{Flag: "peer", List: true,
		Help: "Raft addresses of other instances, separated by commas or in several flags. " +
			"Any two instances need one in common. The first start waits until all of them are up. " +
			"Without --peer an empty folder becomes its own cluster."},
	{Flag: "tier", Default: "default",
		Help: "Tier of this instance; the tiers are fixed when the cluster is created."},
	{Flag: "tiers", List: true,
		Help: "Tiers of a new cluster, separated by commas or in several flags (default: the one of --tier). " +
			"Each is written as its NAME, and behind it :factor=N for a replication factor of its own, " +
			":vote=false if its instances have no vote about the cluster, and :buckets=0 if they hold no data. " +
			"Nodes are in the first tier with data, unless node create names another. " +
			"All instances of the first start need the same tiers; those that join later need none."},
	{Flag: "failure-domain", List: true,
		Help: "Failure domains of this instance, as KEY=VALUE, separated by commas or in several flags. " +
			"The members of a replicaset share none."},
	{Flag: "replication-factor", Default: "1",
		Help: "How many instances host each shard, 1 to 64. It applies when this instance creates the " +
			"cluster."},
	{Flag: "join-token-file",
		Help: "File with the secret that admits instances to the cluster, 16 to 1024 bytes. " +
			"White space around it is ignored. It is read again when it changes: with two lines both are accepted, " +
			"and the first is shown to others."},
	{Flag: "join-token",
		Help: "The join token itself. Other users of the machine can see it on the command line: " +
			"use the variable, or --join-token-file."},
	{Flag: "auth", Bool: true,
		Help: "Enable authentication in a new cluster; the administrator's token is in the file admin-token " +
			"of the data folder. An existing cluster ignores it: see signalbox auth."},
	{Flag: "admin-token-file",
		Help: "File with the administrator's token for --auth, 16 to 1024 random bytes (default: generated)."},
	{Flag: "offline-after", Default: "5s",
		Help: "How long an instance may be unreachable before it counts as offline, 500ms to 10m. " +
			"Use the same value on all instances."},
	{Flag: "raft-rtt", Default: "100ms",
		Help: "Interval of raft heartbeats, 10ms to 1s. The election timeout is 10 to 20 times as long. " +
			"Shorter means faster failover, and more needless elections on slow disks and networks. " +
			"Use the same value on all instances: a shorter one disturbs the leaders of the others."},
	{Flag: "shutdown-timeout", Default: "3s",
		Help: "How long a graceful stop may take, 100ms to 10m; then the process exits. " +
			"No acknowledged write is lost either way."},
	{Flag: "stop-wait", Default: "0s",
		Help: "How long an instance that is to stop may go on serving because the cluster would not survive its " +
			"loss, by the rules of cluster health, up to 30m; 0: it stops at once. Then --shutdown-timeout begins. " +
			"A second signal ends the wait."},
	{Flag: "audit",
		Help: "File for the audit log, one JSON object a line, or stderr; SIGHUP reopens it (default: " +
			"no audit log)."},
	{Flag: "admin", Default: "127.0.0.1:7072",
		Help: "Address of metrics, health and profiles, or off. It requires no credentials: do not expose it."},
	{Flag: "admin-host", List: true,
		Help: "Names, without ports, under which --admin is reached, separated by commas or in several flags. " +
			"IP addresses, the host name and the names of the instance's other addresses need not be listed; " +
			"a request for any other name is refused."},
	{Flag: "console", Default: "off",
		Help: "Address of the console, web pages that show who holds what, who waits and why; or off. " +
			"While authentication is on, people log in with their tokens."},
	{Flag: "console-host", List: true,
		Help: "Names, without ports, under which people reach the console, separated by commas or in several " +
			"flags. Loopback and the advertised names need not be listed; " +
			"a request for any other name is refused."},
	{Flag: "console-tls-cert",
		Help: "PEM file with the certificate of the console and its chain; " +
			"with it the console is served over TLS and HTTP/2."},
	{Flag: "console-tls-key",
		Help: "File with the private key of --console-tls-cert."},
	{Flag: "console-ca",
		Help: "PEM file with the CA certificates for the instances' certificates (default: " +
			"the system's CAs); the console needs it if --listen is off."},
	{Flag: "http", Default: "off",
		Help: "Address where locks are served by HTTP, for programs without an SDK; or off. " +
			"Each caller shows its own token; see signalbox http."},
	{Flag: "http-host", List: true,
		Help: "Names, without ports, under which callers reach --http, separated by commas or in several " +
			"flags. Loopback, its IP addresses and the advertised names need not be listed; " +
			"a request for any other name is refused."},
	{Flag: "http-tls-cert",
		Help: "PEM file with the certificate of --http and its chain; with it TLS and HTTP/2 are served."},
	{Flag: "http-tls-key",
		Help: "File with the private key of --http-tls-cert."},
	{Flag: "http-ca",
		Help: "PEM file with the CA certificates for the instances' certificates (default: " +
			"the system's CAs); --http needs it if --listen is off."},
	{Flag: "metrics-names", Default: "auto",
		Help: "Which names metrics show: on, for the names of semaphores and rollouts and the paths of nodes; " +
			"nodes, for paths alone; off; or auto, which is off while authentication is on, and else on. " +
			"Without names there are no series of semaphores and rollouts, " +
			"and without paths series of nodes have the node's number."},
	{Flag: "shards", Default: "0",
		Help: "Number of data shards of each replicaset, 1 to 64, if this instance makes the cluster; 0: " +
			"the cores divided by the replication factor plus 1, from 1 to 8. " +
			"Afterwards cluster shards changes it. More shards use more cores and disk writes; " +
			"ten cost an idle instance of a cluster about 0.5 % of a core."},
	{Flag: "max-connections", Default: "0",
		Help: "Maximum number of connections; 0: 100000, or less if the limit of open files is lower."},
	{Flag: "max-connections-per-address", Default: "0",
		Help: "Maximum number of connections from one client address, or from one IPv6 network of 64 bits; 0: unlimited."},
	{Flag: "max-memory", Default: "0",
		Help: "Memory limit of the process, such as 2GiB, at least 256MiB; 0: none. " +
			"When client data fills three fifths of it, new sessions, locks and data are rejected; " +
			"keep-alives, releases and reads continue."},
	{Flag: "log-level", Default: "info",
		Help: "Minimum level of log lines on standard error: debug, info, warn or error. " +
			"SIGHUP reads it again from --config."},
	{Flag: "log-format", Default: "text",
		Help: "Format of log lines: text or json. SIGHUP reads it again from --config."},
	{Flag: "existing", Bool: true,
		Help: "Start only an instance that is in the data folder already: a folder without one is an error, " +
			"and no cluster is made or joined."},
	{Flag: "tour", FlagOnly: true, Bool: true,
		Help: "Print a short tour once the instance is ready."},
}

// Settings of the client, by flag.
var (
	// connection says where a client connects and with which credentials.
	connection = []string{
		"endpoints", "node", "cluster", "token-file", "tls", "tls-ca", "tls-cert", "tls-key", "tls-server-name",
	}
	// OfContext are those that a context holds.
	OfContext = append([]string{"timeout", "session-timeout"}, connection...)
	// Paths are those that are names of files.
	Paths = []string{"token-file", "tls-ca", "tls-cert", "tls-key"}
	// held are those of a connection that a command under a lease inherits although they are empty:
	// a flag overrides the context.
	held = append([]string{"cluster", "tls-server-name"}, Paths...)
)
