package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// setting is one line of the table of settings: a flag, and an environment variable of the same
// name. Flags come before the environment. The help and the reference page are written from it.
type setting struct {
	flag string
	def  string
	help string // a full sentence: what it is, its unit, what it costs
	bool bool
}

// envPrefix begins the names of all environment variables of settings.
const envPrefix = "SIGNALBOX_YDB_"

// env is the setting's environment variable.
func (s *setting) env() string {
	return envPrefix + strings.ToUpper(strings.ReplaceAll(s.flag, "-", "_"))
}

var settings = []setting{
	{flag: "endpoints", def: "127.0.0.1:7070",
		help: "Addresses of instances of the cluster, separated by commas; one that answers is enough."},
	{flag: "cluster", help: "Id or name of the cluster that is meant; an instance of another one is refused (default: any)."},
	{flag: "listen", def: "127.0.0.1:2136", help: "Address for YDB clients."},
	{flag: "database", def: "/local",
		help: "Database that YDB clients name. Their paths begin with it; the cluster's paths are what follows. / takes nothing off."},
	{flag: "advertise", help: "Addresses of all gateways as YDB clients reach them, separated by commas; discovery answers with them. Give every gateway the same list (default: the --listen address, with the host's name if it listens on all interfaces)."},
	{flag: "listen-tls-cert",
		help: "PEM file with the certificate for YDB clients and its chain; with it clients must use TLS (grpcs). Changed files are loaded within seconds."},
	{flag: "listen-tls-key", help: "File with the private key of --listen-tls-cert."},
	{flag: "max-connections", def: "0",
		help: "Maximum number of connections of clients, but never more than half the limit of open files; 0: 10000."},
	{flag: "max-connections-per-address", def: "0",
		help: "Maximum number of connections from one client address, or from one IPv6 network of 64 bits; 0: unlimited."},
	{flag: "tls", bool: true, help: "Connect to the cluster over TLS; the other --tls flags imply it."},
	{flag: "tls-ca", help: "PEM file with the CA certificates for the instances' certificates (default: the system's CAs); read again for each connection."},
	{flag: "tls-server-name",
		help: "Name that the instances' certificates must be valid for, instead of the host in the address."},
	{flag: "admin", def: "off",
		help: "Address of metrics (/metrics), health (/healthz) and profiles (/debug/pprof), or off. It requires no credentials: do not expose it."},
	{flag: "admin-host",
		help: "Names, without ports, under which --admin is reached, separated by commas. IP addresses and the host name need not be listed; a request for any other name is refused."},
	{flag: "log-level", def: "info", help: "Minimum level of log lines on standard error: debug, info, warn or error."},
	{flag: "log-format", def: "text", help: "Format of log lines: text or json."},
}

// values are the settings by flag.
type values map[string]string

var (
	errHelp    = errors.New("help is asked for")
	errVersion = errors.New("the version is asked for")
)

// usageError is an error of the command line itself: exit code 2.
type usageError struct{ text string }

func (e *usageError) Error() string { return e.text }

func usagef(format string, args ...any) error { return &usageError{fmt.Sprintf(format, args...)} }

// readSettings reads the flags and the environment.
func readSettings(args []string, lookup func(string) (string, bool)) (values, error) {
	fs := flag.NewFlagSet("signalbox-ydb", flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	showVersion := fs.Bool("version", false, "")
	texts, bools := make(map[string]*string), make(map[string]*bool)
	for _, s := range settings {
		if s.bool {
			bools[s.flag] = fs.Bool(s.flag, false, s.help)
		} else {
			texts[s.flag] = fs.String(s.flag, s.def, s.help)
		}
	}
	switch err := fs.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return nil, errHelp
	case err != nil:
		return nil, usagef("%s", strings.ReplaceAll(err.Error(), ": -", ": --"))
	case *showVersion:
		return nil, errVersion
	case fs.NArg() > 0:
		return nil, usagef("%q is no setting; signalbox-ydb takes flags only", fs.Arg(0))
	}
	given := make(map[string]bool)
	fs.Visit(func(f *flag.Flag) { given[f.Name] = true })
	v := make(values)
	for _, s := range settings {
		if s.bool {
			v[s.flag] = strconv.FormatBool(*bools[s.flag])
		} else {
			v[s.flag] = *texts[s.flag]
		}
		if text, ok := lookup(s.env()); ok && text != "" && !given[s.flag] {
			if s.bool {
				on, err := strconv.ParseBool(text)
				if err != nil {
					return nil, usagef("$%s %q is neither true nor false", s.env(), text)
				}
				text = strconv.FormatBool(on)
			}
			v[s.flag] = text
		}
	}
	return v, nil
}

// serviceVariable matches the variables of Kubernetes and Docker for a service named signalbox-ydb.
var serviceVariable = regexp.MustCompile(`_(SERVICE_HOST|SERVICE_PORT(_[A-Z0-9_]+)?|PORT(_[0-9]+_(TCP|UDP|SCTP)(_ADDR|_PORT|_PROTO)?)?)$`)

// unknownVariables are the variables that look like settings and are none.
func unknownVariables(environ []string) (names []string) {
	for _, e := range environ {
		name, _, _ := strings.Cut(e, "=")
		known := func(s setting) bool { return s.env() == name }
		if strings.HasPrefix(name, envPrefix) && !serviceVariable.MatchString(name) &&
			!slices.ContainsFunc(settings, known) {
			names = append(names, name)
		}
	}
	return names
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
