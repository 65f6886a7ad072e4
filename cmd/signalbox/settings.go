package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/signalbox-dev/signalbox/server/file"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"
)

// setting is one line of the settings table: a flag, and where its value comes from when the flag
// is not given. resolve has the order. The reference page is written from this table.
type setting struct {
	flag  string
	short string
	def   string
	help  string // a full sentence: what it is, its unit, what it costs
	bool  bool
	list  bool // values separated by commas; the flag may be given several times, and its file form may be a list
	scope scope

	flagOnly bool // it has no environment variable
}

// env is the setting's environment variable, named like its flag; empty for none.
func (s *setting) env() string {
	if s.flagOnly {
		return ""
	}
	return "SIGNALBOX_" + strings.ToUpper(strings.ReplaceAll(s.flag, "-", "_"))
}

type scope uint8

const (
	scopeClient scope = iota // every verb that talks to a server
	scopeServe
)

// settings is the one table. Keys of configuration files are the flags' names.
var settings = slices.Concat(inScope(scopeClient, clientSettings), inScope(scopeServe, serveSettings))

func inScope(sc scope, list []setting) []setting {
	for i := range list {
		list[i].scope = sc
	}
	return list
}

var clientSettings = []setting{
	{flag: "endpoints", def: "127.0.0.1:7070",
		help: "Addresses of instances, separated by commas; one that answers is enough."},
	{flag: "node", def: "/default",
		help: "Path of the coordination node, the namespace of semaphores and sessions."},
	{flag: "cluster",
		help: "Id or name of the cluster that is meant; an instance of another one is refused (default: any)."},
	{flag: "timeout", def: "15s",
		help: "How long to try, as a Go duration; then the exit code is 5 if no instance was reached, else 1."},
	{flag: "session-timeout", def: "10s",
		help: "How long the session outlives its last keep-alive, 100ms to 30m. " +
			"Shorter means faster failover and less tolerance for pauses."},
	{flag: "token-file",
		help: "File with the token, read again for each connection; without it the client is anonymous."},
	{flag: "tls", bool: true,
		help: "Connect over TLS; the other --tls flags imply it. " +
			"The certificate of each instance must be valid for its host name."},
	{flag: "tls-ca",
		help: "PEM file with the CA certificates for the instances' certificates (default: the system's CAs); " +
			"read again for each connection."},
	{flag: "tls-cert",
		help: "PEM file with this client's certificate and its chain; read again for each connection."},
	{flag: "tls-key",
		help: "File with the private key of --tls-cert."},
	{flag: "tls-server-name",
		help: "Name that the instances' certificates must be valid for, instead of the host in the address."},
	{flag: "output", short: "o", def: "table",
		help: "Output for people (table) or programs (json: one document; jsonl: one line an item). " +
			"Verbs with endless output, such as watches, refuse json."},
	{flag: "no-color", bool: true,
		help: "Disable terminal colors; NO_COLOR works too."},
	{flag: "context",
		help: "Context to use from the client's configuration file; see signalbox context."},
	{flag: "client-config",
		help: "The client's configuration file (default signalbox/client.yaml in the user's configuration " +
			"folder)."},
}

var serveSettings = []setting{
	{flag: "config",
		help: "YAML configuration file; its keys are the names of these flags. Unknown keys are errors."},
	{flag: "data", def: "./signalbox-data",
		help: "Folder of the instance's log and snapshots; created if missing. Only its owner may read it: " +
			"read access of others is removed, write access of others is an error."},
	{flag: "listen", def: "127.0.0.1:7070",
		help: "Address for clients without TLS, or off."},
	{flag: "listen-tls", def: "off",
		help: "Address for clients with TLS, or off. TLS clients learn only TLS addresses of other " +
			"instances, plain clients only plain ones."},
	{flag: "listen-tls-cert",
		help: "PEM file with the certificate for --listen-tls and its chain. " +
			"Changed certificate and key files are loaded within seconds, or at SIGHUP."},
	{flag: "listen-tls-key",
		help: "File with the private key of --listen-tls-cert."},
	{flag: "listen-tls-client-ca",
		help: "File with the CA certificates for client certificates. " +
			"A client with another certificate is rejected."},
	{flag: "listen-tls-require-client-cert", bool: true,
		help: "Reject TLS clients without a certificate; needs --listen-tls-client-ca."},
	{flag: "advertise-tls",
		help: "Address that TLS clients connect to (default: the --listen-tls address)."},
	{flag: "cluster-tls-cert",
		help: "File with the certificate of this instance for connections between instances, " +
			"in both directions; valid for the host of --raft-advertise. " +
			"Either all instances of a cluster have one, or none."},
	{flag: "cluster-tls-key",
		help: "File with the private key of --cluster-tls-cert."},
	{flag: "cluster-tls-ca",
		help: "File with the CA certificates for the instances' certificates; the CA should sign no others."},
	{flag: "raft", def: "127.0.0.1:7071",
		help: "Address for raft and RPCs between instances."},
	{flag: "advertise",
		help: "Address that clients connect to (default: the --listen address). " +
			"Needed in containers, behind proxies, and when listening on all interfaces."},
	{flag: "raft-advertise",
		help: "Address that other instances connect to (default: the --raft address)."},
	{flag: "cluster",
		help: "Name of the cluster that this instance creates or joins."},
	{flag: "instance",
		help: "Name of this instance, unique in the cluster (default: " +
			"the host name, or one assigned when it joins)."},
	{flag: "peer", list: true,
		help: "Raft addresses of other instances, separated by commas or in several flags. " +
			"Any two instances need one in common. The first start waits until all of them are up. " +
			"Without --peer an empty folder becomes its own cluster."},
	{flag: "tier", def: "default",
		help: "Tier of this instance; the tiers are fixed when the cluster is created."},
	{flag: "tiers", list: true,
		help: "Tiers of a new cluster, separated by commas or in several flags (default: the one of --tier). " +
			"Each is written as its NAME, and behind it :factor=N for a replication factor of its own, " +
			":vote=false if its instances have no vote about the cluster, and :buckets=0 if they hold no data. " +
			"Nodes are in the first tier with data, unless node create names another. " +
			"All instances of the first start need the same tiers; those that join later need none."},
	{flag: "failure-domain", list: true,
		help: "Failure domains of this instance, as KEY=VALUE, separated by commas or in several flags. " +
			"The members of a replicaset share none."},
	{flag: "replication-factor", def: "1",
		help: "How many instances host each shard, 1 to 64. It applies when this instance creates the " +
			"cluster."},
	{flag: "join-token-file",
		help: "File with the secret that admits instances to the cluster, 16 to 1024 bytes. " +
			"White space around it is ignored. It is read again when it changes: with two lines both are accepted, " +
			"and the first is shown to others."},
	{flag: "join-token",
		help: "The join token itself. Other users of the machine can see it on the command line: " +
			"use the variable, or --join-token-file."},
	{flag: "auth", bool: true,
		help: "Enable authentication in a new cluster; the administrator's token is in the file admin-token " +
			"of the data folder. An existing cluster ignores it: see signalbox auth."},
	{flag: "admin-token-file",
		help: "File with the administrator's token for --auth, 16 to 1024 random bytes (default: generated)."},
	{flag: "offline-after", def: "5s",
		help: "How long an instance may be unreachable before it counts as offline, 500ms to 10m. " +
			"Use the same value on all instances."},
	{flag: "raft-rtt", def: "100ms",
		help: "Interval of raft heartbeats, 10ms to 1s. The election timeout is 10 to 20 times as long. " +
			"Shorter means faster failover, and more needless elections on slow disks and networks. " +
			"Use the same value on all instances: a shorter one disturbs the leaders of the others."},
	{flag: "shutdown-timeout", def: "3s",
		help: "How long a graceful stop may take, 100ms to 10m; then the process exits. " +
			"No acknowledged write is lost either way."},
	{flag: "stop-wait", def: "0s",
		help: "How long an instance that is to stop may go on serving because the cluster would not survive its " +
			"loss, by the rules of cluster health, up to 30m; 0: it stops at once. Then --shutdown-timeout begins. " +
			"A second signal ends the wait."},
	{flag: "audit",
		help: "File for the audit log, one JSON object a line, or stderr; SIGHUP reopens it (default: " +
			"no audit log)."},
	{flag: "admin", def: "127.0.0.1:7072",
		help: "Address of metrics, health and profiles, or off. It requires no credentials: do not expose it."},
	{flag: "console", def: "off",
		help: "Address of the console, web pages that show who holds what, who waits and why; or off. " +
			"While authentication is on, people log in with their tokens."},
	{flag: "console-host", list: true,
		help: "Names, without ports, under which people reach the console, separated by commas or in several " +
			"flags. Loopback and the advertised names need not be listed; " +
			"a request for any other name is refused."},
	{flag: "console-tls-cert",
		help: "PEM file with the certificate of the console and its chain; " +
			"with it the console is served over TLS and HTTP/2."},
	{flag: "console-tls-key",
		help: "File with the private key of --console-tls-cert."},
	{flag: "console-ca",
		help: "PEM file with the CA certificates for the instances' certificates (default: " +
			"the system's CAs); the console needs it if --listen is off."},
	{flag: "http", def: "off",
		help: "Address where locks are served by HTTP, for programs without an SDK; or off. " +
			"Each caller shows its own token; see signalbox http."},
	{flag: "http-host", list: true,
		help: "Names, without ports, under which callers reach --http, separated by commas or in several " +
			"flags. Loopback, its IP addresses and the advertised names need not be listed; " +
			"a request for any other name is refused."},
	{flag: "http-tls-cert",
		help: "PEM file with the certificate of --http and its chain; with it TLS and HTTP/2 are served."},
	{flag: "http-tls-key",
		help: "File with the private key of --http-tls-cert."},
	{flag: "http-ca",
		help: "PEM file with the CA certificates for the instances' certificates (default: " +
			"the system's CAs); --http needs it if --listen is off."},
	{flag: "metrics-names", def: "auto",
		help: "Which names metrics show: on, for the names of semaphores and rollouts and the paths of nodes; " +
			"nodes, for paths alone; off; or auto, which is off while authentication is on, and else on. " +
			"Without names there are no series of semaphores and rollouts, " +
			"and without paths series of nodes have the node's number."},
	{flag: "shards", def: "0",
		help: "Number of data shards of each replicaset, 1 to 64, if this instance makes the cluster; 0: " +
			"the cores divided by the replication factor plus 1, from 1 to 8. " +
			"Afterwards cluster shards changes it. More shards use more cores and disk writes; " +
			"ten cost an idle instance of a cluster about 0.5 % of a core."},
	{flag: "max-connections", def: "0",
		help: "Maximum number of connections; 0: 100000, or less if the limit of open files is lower."},
	{flag: "max-connections-per-address", def: "0",
		help: "Maximum number of connections from one client address, or from one IPv6 network of 64 bits; 0: unlimited."},
	{flag: "max-memory", def: "0",
		help: "Memory limit of the process, such as 2GiB, at least 256MiB; 0: none. " +
			"When client data fills three fifths of it, new sessions, locks and data are rejected; " +
			"keep-alives, releases and reads continue."},
	{flag: "log-level", def: "info",
		help: "Minimum level of log lines on standard error: debug, info, warn or error. " +
			"SIGHUP reads it again from --config."},
	{flag: "log-format", def: "text",
		help: "Format of log lines: text or json. SIGHUP reads it again from --config."},
	{flag: "existing", bool: true,
		help: "Start only an instance that is in the data folder already: a folder without one is an error, " +
			"and no cluster is made or joined."},
	{flag: "tour", flagOnly: true, bool: true,
		help: "Print a short tour once the instance is ready."},
}

// addFlags declares the flags of a scope. Values are read with resolve, never from the flag set
// alone.
func addFlags(fs *pflag.FlagSet, sc scope, only ...string) {
	for _, s := range settings {
		if s.scope != sc || (len(only) > 0 && !slices.Contains(only, s.flag)) {
			continue
		}
		help := s.help
		if !s.flagOnly {
			help += " [$" + s.env() + "]"
		}
		if s.bool {
			fs.BoolP(s.flag, s.short, false, help)
		} else if s.list {
			fs.VarP(new(listValue), s.flag, s.short, help)
		} else {
			fs.StringP(s.flag, s.short, s.def, help)
		}
	}
}

// resolve gives the values of a scope's settings for a command whose flags are parsed. file is the
// content of the configuration file by key, or nil. The order is flags, then environment, then
// file, then default.
//
// named: a flag names where file is from, a context. What a flag names goes before what was
// inherited: the file comes before the environment then. And a context is a whole connection: the
// settings of it that the file leaves out have their defaults, whatever the environment says.
//
// An empty variable is one that is not set, but for what a command under a lease inherits: there it
// says that the context's own value does not count.
func resolve(cmd *cobra.Command, sc scope, file map[string]string, named bool) (map[string]string, error) {
	out := map[string]string{}
	underLease := os.Getenv("SIGNALBOX_SESSION") != ""
	for _, s := range settings {
		if s.scope != sc {
			continue
		}
		f := cmd.Flag(s.flag)
		if f == nil {
			out[s.flag] = s.def
			continue
		}
		from, v := "--"+s.flag, f.DefValue
		env := os.Getenv(s.env())
		inEnv := env != "" || underLease && slices.Contains(heldSettings, s.flag)
		x, inFile := file[s.flag]
		if named && (inFile || slices.Contains(connectionSettings, s.flag)) {
			inEnv = false
		}
		switch {
		case f.Changed:
			v = f.Value.String()
		case inEnv:
			from, v = "$"+s.env(), env
		case inFile:
			from, v = "key "+s.flag, x
		}
		if s.bool {
			on, err := strconv.ParseBool(v)
			if err != nil {
				return nil, usagef("%s %q is neither true nor false", from, v)
			}
			v = strconv.FormatBool(on)
		}
		out[s.flag] = v
	}
	return out, nil
}

// inTable reports whether a flag is a setting. Its name is not enough: serve's --data is a setting,
// and others are not.
func inTable(f *pflag.Flag) bool {
	return slices.ContainsFunc(settings, func(s setting) bool { return s.flag == f.Name && strings.HasPrefix(f.Usage, s.help) })
}

// listValue joins the values of a flag that is given several times.
type listValue struct{ text string }

func (l *listValue) String() string { return l.text }
func (l *listValue) Type() string   { return "list" }
func (l *listValue) Set(text string) error {
	if l.text != "" {
		l.text += ","
	}
	l.text += text
	return nil
}

// splitList splits at commas. It ignores blanks around items, and empty items.
func splitList(text string) (list []string) {
	for item := range strings.SplitSeq(text, ",") {
		if item = strings.TrimSpace(item); item != "" {
			list = append(list, item)
		}
	}
	return list
}

// isFileKey reports whether a configuration file may hold the key.
func isFileKey(sc scope, key string) bool {
	return slices.ContainsFunc(settings, func(s setting) bool { return s.scope == sc && s.flag == key }) &&
		key != "config" && key != "client-config" && key != "context"
}

// maxConfigFile is the longest configuration file, of a server or a client, in bytes.
const maxConfigFile = 1 << 20

func readServeFile(path string) (map[string]string, error) {
	if path == "" {
		return nil, nil
	}
	b, err := file.Read(path, maxConfigFile) // a device or a log given by mistake may have no end
	if err != nil {
		return nil, usagef("cannot read the configuration file: %v", err)
	}
	var doc yaml.Node
	if err := yaml.Unmarshal(b, &doc); err != nil {
		return nil, usagef("%s is not valid YAML: %v", path, err)
	}
	if len(doc.Content) == 0 {
		return map[string]string{}, nil
	}
	return readKeys(path, doc.Content[0], scopeServe)
}

// readKeys reads a mapping of scalars. It rejects unknown and duplicate keys, with their line.
func readKeys(path string, n *yaml.Node, sc scope) (map[string]string, error) {
	if n.Kind != yaml.MappingNode {
		return nil, usagef("%s:%d: expected keys and values, one setting a line", path, n.Line)
	}
	out := map[string]string{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		k, v := n.Content[i], n.Content[i+1]
		if !isFileKey(sc, k.Value) {
			return nil, usagef("%s:%d: unknown key %q; the keys are the names of the flags without dashes in front", path, k.Line, k.Value)
		}
		if _, twice := out[k.Value]; twice {
			return nil, usagef("%s:%d: key %q is given twice; keep one", path, k.Line, k.Value)
		}
		text, err := readValue(sc, k.Value, v)
		if err != nil {
			return nil, usagef("%s:%d: key %q wants %v", path, v.Line, k.Value, err)
		}
		out[k.Value] = text
	}
	return out, nil
}

// readValue reads a scalar; for a setting that is a list, also a sequence of them, or a mapping as
// KEY=VALUE.
func readValue(sc scope, key string, v *yaml.Node) (string, error) {
	if v.Kind == yaml.ScalarNode {
		return v.Value, nil
	}
	list := slices.ContainsFunc(settings, func(s setting) bool { return s.scope == sc && s.flag == key && s.list })
	if !list {
		return "", errors.New("a single value")
	}
	var parts []string
	for i, n := range v.Content {
		if n.Kind != yaml.ScalarNode {
			return "", errors.New("a value, or a list of values")
		}
		if v.Kind == yaml.MappingNode && i%2 == 1 {
			parts[len(parts)-1] += "=" + n.Value
			continue
		}
		parts = append(parts, n.Value)
	}
	return strings.Join(parts, ","), nil
}

// usageError is an error of the command line itself: exit code 2.
type usageError struct{ text string }

func (e *usageError) Error() string { return e.text }

func usagef(format string, args ...any) error { return &usageError{fmt.Sprintf(format, args...)} }
