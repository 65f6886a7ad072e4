package main

import (
	"regexp"
	"slices"
	"strings"

	"github.com/signalbox-dev/signalbox/cmd/signalbox/settings"
	"github.com/signalbox-dev/signalbox/cmd/signalbox/terminal"
)

// ownVariables are those beside the settings: the ones that commands get, and the variable of
// server/deploy/cluster.sh and signalbox-mcp.
var ownVariables = []string{
	"SIGNALBOX_AGENT", "SIGNALBOX_ATTEMPT", "SIGNALBOX_BIN", "SIGNALBOX_EXPECTED", "SIGNALBOX_GATE", "SIGNALBOX_KEPT",
	"SIGNALBOX_LEASES", "SIGNALBOX_LOCATION", "SIGNALBOX_NAME", "SIGNALBOX_PAYLOAD", "SIGNALBOX_PERIOD",
	"SIGNALBOX_SESSION", "SIGNALBOX_SLOT", "SIGNALBOX_SLOTS", "SIGNALBOX_TOKEN", "SIGNALBOX_TRACK", "SIGNALBOX_VERSION",
}

// serviceVariable matches what Kubernetes and Docker set for a service whose name begins with
// signalbox.
var serviceVariable = regexp.MustCompile(`_(SERVICE_HOST|SERVICE_PORT(_[A-Z0-9_]+)?|PORT(_[0-9]+_(TCP|UDP|SCTP)(_ADDR|_PORT|_PROTO)?)?)$`)

// gatewayPrefix begins the names of the variables of signalbox-ydb.
const gatewayPrefix = "SIGNALBOX_YDB_"

// warnEnvironment warns of variables that look like settings and are none.
func warnEnvironment(a *app, environ []string) {
	if a.warned {
		return
	}
	a.warned = true
	known := append(slices.Clone(ownVariables), "SIGNALBOX_TEST") // of the tests that run this
	for _, s := range settings.All {
		known = append(known, s.Env())
	}
	for _, e := range environ {
		name, value, _ := strings.Cut(e, "=")
		if name == "SIGNALBOX_TOKEN" && strings.Trim(value, "0123456789") != "" {
			a.note("signalbox: SIGNALBOX_TOKEN is no number and is ignored: it holds the fencing token of a lock; " +
				"put a credential into a file, and name the file in SIGNALBOX_TOKEN_FILE\n")
			continue
		}
		if !strings.HasPrefix(name, "SIGNALBOX_") || strings.HasPrefix(name, gatewayPrefix) ||
			slices.Contains(known, name) || serviceVariable.MatchString(name) {
			continue
		}
		text := ""
		if near := closest(name, known); near != "" {
			text = "; did you mean " + near + "?"
		}
		a.note("signalbox: unknown variable %s in the environment is ignored%s\n", terminal.Sanitize(name), text)
	}
}

// closest is the known name that differs least, if by few letters.
func closest(name string, known []string) (best string) {
	least := 4
	for _, k := range known {
		if d := distance(name, k); d < least {
			best, least = k, d
		}
	}
	return best
}

// distance is the edit distance of two names.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		before := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := before
			if a[i] != b[j] {
				change++
			}
			before = row[j+1]
			row[j+1] = min(change, row[j]+1, before+1)
		}
	}
	return row[len(b)]
}
