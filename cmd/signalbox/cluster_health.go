package main

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/signalbox-dev/signalbox/client/admin"
	"github.com/signalbox-dev/signalbox/cmd/signalbox/terminal"
	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/spf13/cobra"
)

func healthCmd(a *app) *cobra.Command {
	c := command("health", "Show what works, and which failures the cluster survives",
		`Show what works and which failures the cluster survives, as seen by the instance that answers:

  - whether the meta shard and each shard have a majority and a leader
  - which replicasets have fewer copies than configured, and since when
  - what the loss of one more instance or failure domain would stop
  - which instances are not heard, and since when
  - which instances have certificates that are not valid, and whom that keeps out
  - which instances are drained

The exit code is 0 only if everything works and the cluster survives what its configuration
promises: the loss of one instance with replication factor 3, of two with 5. Where failure domains
are configured, it must survive the loss of any one domain too. A replicaset with factor 3 or more
does. The meta shard does if the key has at least three values.

It answers without a majority too, and then shows how old its cluster map is.`)
	c.Example = "  signalbox cluster health"
	c.RunE = a.adminVerb(func(inv *invocation, c *admin.Client, _ []string) error {
		h, err := c.Health(inv.ctx)
		if err != nil {
			return err
		}
		if err := printHealth(inv.printer(), h); err != nil {
			return err
		}
		return healthCode(h)
	})
	return c
}

// healthCode is the exit code of verbs that show health. The output has named the problems.
func healthCode(h *protocol.ClusterHealth) error {
	if h.State == protocol.HealthHealthy {
		return nil
	}
	return &codeError{code: exitError, quiet: true}
}

func printHealth(p *printer, h *protocol.ClusterHealth) error {
	if p.format != "table" {
		return p.document(h)
	}
	return printHealthLines(p, h)
}

func printHealthLines(p *printer, h *protocol.ClusterHealth) error {
	style := terminal.Bold
	if h.State != protocol.HealthHealthy {
		style = terminal.Red
	}
	first := terminal.Paint(p.color, style, h.State) + ", as " + terminal.Sanitize(h.AnsweredBy) + " sees it"
	if !h.Confirmed {
		first += "; a majority confirmed its map of the cluster " +
			terminal.Age(time.Duration(h.AgeMS)*time.Millisecond) + " ago for the last time"
	}
	lines := append([]string{}, h.Problems...)
	for i := range h.Unreachable {
		lines = append(lines, unheard(&h.Unreachable[i]))
	}
	switch {
	case len(h.Losses) > 0:
		lines = append(lines, h.Losses...)
	case h.State == protocol.HealthBroken:
		lines = append(lines, "the loss of one more instance would stop nothing else")
	case len(h.Domains) > 0:
		lines = append(lines, "any one instance, or any one failure domain, may be lost")
	default:
		lines = append(lines, "any one instance may be lost")
	}
	lines = append(lines, notices(h)...)
	for i, l := range lines {
		lines[i] = "  " + terminal.Sanitize(l) + "\n"
	}
	_, err := io.WriteString(p.w, first+"\n"+strings.Join(lines, ""))
	return err
}

// notices are sentences about what operators have under way.
func notices(h *protocol.ClusterHealth) (lines []string) {
	for _, name := range h.Drained {
		lines = append(lines, fmt.Sprintf("%s is drained until its next start; signalbox cluster undrain %[1]s ends that", name))
	}
	if h.Upgrade != "" {
		lines = append(lines, h.Upgrade)
	}
	return lines
}

// unheard describes an instance that sends no heartbeats.
func unheard(u *protocol.ClusterUnreachable) string {
	text := u.Instance + " was never heard by the instance that answers"
	if u.ForMS > 0 {
		text = fmt.Sprintf("%s was not heard for %s", u.Instance, terminal.Age(time.Duration(u.ForMS)*time.Millisecond))
	}
	if u.State == "Offline" && u.Reason != "" {
		text += ": " + u.Reason
	}
	if u.Unreached != "" {
		text += "; " + u.Unreached
	}
	return text
}
