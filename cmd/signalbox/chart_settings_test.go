package main

import (
	"bytes"
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/signalbox-dev/signalbox/cmd/signalbox/settings"
)

// chartSets are the settings of serve that the chart gives itself, from its other values, and those
// that mean nothing in a pod.
var chartSets = []string{
	"config", "data", "listen", "listen-tls", "listen-tls-cert", "listen-tls-key", "advertise-tls",
	"cluster-tls-cert", "cluster-tls-key", "cluster-tls-ca", "raft", "advertise", "raft-advertise", "instance", "peer",
	"failure-domain", "replication-factor", "join-token-file", "join-token", "auth", "admin-token-file", "stop-wait",
	"admin", "console", "console-host", "console-tls-cert", "console-tls-key", "console-ca", "http", "http-host", "http-tls-cert", "http-tls-key",
	"http-ca", "log-format", "tour",
}

// settingsSchema is the JSON schema of the chart's value settings: the flags of serve that it
// leaves to its user, without others.
func settingsSchema(t *testing.T) []byte {
	type property struct {
		Description string         `json:"description"`
		Type        any            `json:"type"`
		Items       map[string]any `json:"items,omitempty"`
		Pattern     string         `json:"pattern,omitempty"`
	}
	properties := map[string]property{}
	left := slices.Clone(chartSets)
	for _, s := range settings.OfServe {
		if n := slices.Index(left, s.Flag); n >= 0 {
			left = slices.Delete(left, n, n+1)
			continue
		}
		p := property{Description: s.Help, Type: []string{"string", "integer"}}
		switch {
		case s.Bool:
			p.Type = "boolean"
		case s.List:
			p.Type, p.Items = []string{"array", "string"}, map[string]any{"type": "string"}
		case s.Flag == "shutdown-timeout": // the grace period of pods is computed from it
			p.Type, p.Pattern = "string", "^[0-9]+(ms|s|m)$"
		}
		properties[s.Flag] = p
	}
	if len(left) > 0 {
		t.Errorf("serve has no flags %v", left)
	}
	var b bytes.Buffer
	to := json.NewEncoder(&b)
	to.SetEscapeHTML(false)
	to.SetIndent("  ", "  ")
	err := to.Encode(map[string]any{"settings": map[string]any{
		"type": "object", "additionalProperties": false, "properties": properties}})
	if err != nil {
		t.Fatal(err)
	}
	return bytes.TrimSpace(b.Bytes())
}

// TestReferenceChart: the chart takes the settings that serve has.
func TestReferenceChart(t *testing.T) {
	const path, begin = "../../server/deploy/chart/values.schema.json", "  \"definitions\": "
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	head, _, ok := strings.Cut(string(before), begin)
	if !ok {
		t.Fatalf("%s has no definitions", path)
	}
	after := head + begin + string(settingsSchema(t)) + "\n}\n"
	switch {
	case after == string(before):
	case *update:
		if err := os.WriteFile(path, []byte(after), 0o600); err != nil {
			t.Fatal(err)
		}
	default:
		t.Errorf("%s is out of date; `make golden` rewrites it", path)
	}
}
