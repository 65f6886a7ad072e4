package main

import (
	"fmt"
	"strings"

	"github.com/signalbox-dev/signalbox/cmd/signalbox-ydb/gateway"
)

const about = `signalbox-ydb is a gateway for YDB clients. It serves YDB's coordination service, discovery and
directories over gRPC from a signalbox cluster, so that YDB's SDKs work with it unchanged.

Start a server with "signalbox dev", then the gateway, and give YDB clients the connection string
  grpc://127.0.0.1:2136/local

A client's token goes to the cluster as it is; without one the client is anonymous. SIGTERM ends
the gateway: clients restore their sessions at another gateway, and keep what they hold.`

// helpWidth is the width of the help, in columns.
const helpWidth = 100

// help is the text that --help prints.
func help() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n\nUsage:\n  signalbox-ydb [flags]\n\nFlags:\n", about)
	for _, s := range settings {
		name := "--" + s.flag
		if !s.bool {
			name += " VALUE"
		}
		text := s.help
		if s.def != "" {
			text += " Default: " + s.def + "."
		}
		fmt.Fprintf(&b, "  %s [$%s]\n%s", name, s.env(), indent(text, "      "))
	}
	b.WriteString("  --version\n      Print the version.\n  --help\n      Print this text.\n")
	return b.String()
}

// indent breaks a text into indented lines.
func indent(text, margin string) string {
	var b strings.Builder
	column := 0
	for word := range strings.FieldsSeq(text) {
		if column > 0 && column+1+len(word) > helpWidth {
			b.WriteByte('\n')
			column = 0
		}
		if column == 0 {
			b.WriteString(margin)
			column = len(margin)
		} else {
			b.WriteByte(' ')
			column++
		}
		b.WriteString(word)
		column += len(word)
	}
	b.WriteByte('\n')
	return b.String()
}

// reference is the page of all settings and metrics. A test keeps REFERENCE.md up to date.
func reference() string {
	var b strings.Builder
	b.WriteString("# signalbox-ydb: reference of the settings and metrics\n\nWritten from the tables in `cmd/signalbox-ydb`; `make golden` rewrites it.\n\n")
	text, example, _ := strings.Cut(about, "\n  ")
	address, rest, _ := strings.Cut(example, "\n")
	fmt.Fprintf(&b, "%s\n\n```\n%s\n```\n%s\n\n", text, address, rest)
	b.WriteString("Flags come before the environment, and the environment before the defaults.\n\n")
	for _, s := range settings {
		def := ""
		if s.def != "" {
			def = " (default `" + s.def + "`)"
		}
		fmt.Fprintf(&b, "- `--%s`, `%s`%s: %s\n", s.flag, s.env(), def, s.help)
	}
	b.WriteString("\n## Metrics\n\nServed at `/metrics` of the `--admin` address. Those that end with `_total` are counters, all others gauges.\n\n")
	for m := range gateway.AllMetrics() {
		fmt.Fprintf(&b, "- `%s`: %s\n", m.Name, m.Help)
	}
	b.WriteString("\n## Exit codes\n\n| code | |\n|---|---|\n| 0 | ok |\n| 1 | error |\n| 2 | the command line is wrong |\n")
	return b.String()
}
