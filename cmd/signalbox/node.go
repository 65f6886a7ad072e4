package main

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// nodeFields are the fields of a node's configuration as flags. The word "default" sets a field
// back.
var nodeFields = []struct {
	flag, help string
	set        func(c *client.NodeConfig, text string) error
	show       func(c *client.NodeConfig) any
}{
	{"self-check-period", "How often a leader confirms its leadership, 500ms to 10s (default 1s)",
		func(c *client.NodeConfig, t string) (err error) {
			c.SelfCheckPeriod, err = optional(t, readDuration)
			return err
		}, func(c *client.NodeConfig) any { return *c.SelfCheckPeriod }},
	{"grace-period", "Time that a new leader adds to session timeouts after an unplanned leader change, self-check period + 1s to 30s (default 10s)",
		func(c *client.NodeConfig, t string) (err error) {
			c.GracePeriod, err = optional(t, readDuration)
			return err
		}, func(c *client.NodeConfig) any { return *c.GracePeriod }},
	{"read-consistency", "Strict or relaxed (default relaxed): relaxed reads are faster, and may be stale by up to the grace period",
		func(c *client.NodeConfig, t string) (err error) {
			c.ReadConsistency, err = optional(t, parseConsistency)
			return err
		}, func(c *client.NodeConfig) any { return consistencyWord(*c.ReadConsistency) }},
	{"attach-consistency", "Strict or relaxed (default strict): a relaxed attach is answered before it is logged",
		func(c *client.NodeConfig, t string) (err error) {
			c.AttachConsistency, err = optional(t, parseConsistency)
			return err
		}, func(c *client.NodeConfig) any { return consistencyWord(*c.AttachConsistency) }},
	{"counters-mode", "Aggregated or detailed (default aggregated): detailed metrics have a series for each owner session",
		func(c *client.NodeConfig, t string) (err error) {
			c.CountersMode, err = optional(t, parseCounters)
			return err
		}, func(c *client.NodeConfig) any { return countersWord(*c.CountersMode) }},
	{"max-sessions", "Maximum number of sessions (default 1000000)",
		func(c *client.NodeConfig, t string) (err error) {
			c.MaxSessions, err = optional(t, parseQuota)
			return err
		}, func(c *client.NodeConfig) any { return *c.MaxSessions }},
	{"max-semaphores", "Maximum number of semaphores, ephemeral ones included (default 1000000)",
		func(c *client.NodeConfig, t string) (err error) {
			c.MaxSemaphores, err = optional(t, parseQuota)
			return err
		}, func(c *client.NodeConfig) any { return *c.MaxSemaphores }},
	{"max-bytes", "Maximum bytes of names, data, descriptions and payloads, plus 256 or 512 for each record (default 4294967296)",
		func(c *client.NodeConfig, t string) (err error) {
			c.MaxBytes, err = optional(t, parseQuota)
			return err
		}, func(c *client.NodeConfig) any { return *c.MaxBytes }},
	{"max-waiters", "Maximum number of waiting acquires (default 2000000)",
		func(c *client.NodeConfig, t string) (err error) {
			c.MaxWaiters, err = optional(t, parseQuota)
			return err
		}, func(c *client.NodeConfig) any { return *c.MaxWaiters }},
	{"max-watchers", "Maximum number of streams and one-shot watches (default 1000000)",
		func(c *client.NodeConfig, t string) (err error) {
			c.MaxWatchers, err = optional(t, parseQuota)
			return err
		}, func(c *client.NodeConfig) any { return *c.MaxWatchers }},
	{"max-requests", "Maximum requests per second at each instance, 0: no limit (default 0); keep-alives, releases and session ends are never refused",
		func(c *client.NodeConfig, t string) (err error) {
			c.MaxRequests, err = optional(t, parseRate)
			return err
		}, func(c *client.NodeConfig) any { return *c.MaxRequests }},
}

// optional reads a value, or the word "default" as zero, which the server takes as the default.
func optional[T any](text string, parse func(string) (T, error)) (*T, error) {
	var v T
	if text == "default" {
		return &v, nil
	}
	v, err := parse(text)
	return &v, err
}

func parseConsistency(t string) (client.Consistency, error) {
	switch t {
	case "strict":
		return client.Strict, nil
	case "relaxed":
		return client.Relaxed, nil
	}
	return 0, fmt.Errorf("%q is neither strict nor relaxed", t)
}

func consistencyWord(c client.Consistency) string {
	if c == client.Strict {
		return "strict"
	}
	return "relaxed"
}

func parseCounters(t string) (client.CountersMode, error) {
	switch t {
	case "aggregated":
		return client.CountersAggregated, nil
	case "detailed":
		return client.CountersDetailed, nil
	}
	return 0, fmt.Errorf("%q is neither aggregated nor detailed", t)
}

func countersWord(m client.CountersMode) string {
	if m == client.CountersDetailed {
		return "detailed"
	}
	return "aggregated"
}

// parseQuota refuses 0: on the wire it would mean the default, which has a word of its own here.
func parseQuota(t string) (uint64, error) {
	n, err := strconv.ParseUint(t, 10, 64)
	if err != nil || n == 0 {
		return 0, fmt.Errorf("%q is not a number from 1", t)
	}
	return n, nil
}

// parseRate takes 0 as the default, which is no limit.
func parseRate(t string) (uint64, error) {
	n, err := strconv.ParseUint(t, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%q is not a number from 0", t)
	}
	return n, nil
}

func addNodeFlags(fs *pflag.FlagSet) {
	for _, f := range nodeFields {
		fs.String(f.flag, "", f.help+`; "default" resets it.`)
	}
}

func nodeConfig(cmd *cobra.Command) (client.NodeConfig, error) {
	var c client.NodeConfig
	for _, f := range nodeFields {
		if x := cmd.Flag(f.flag); x.Changed {
			if err := f.set(&c, x.Value.String()); err != nil {
				return c, usagef("--%s: %v", f.flag, err)
			}
		}
	}
	return c, nil
}

func nodeRow(n *client.NodeInfo) row {
	r := row{{"path", "path", n.Path}, {"id", "id", n.ID}}
	for _, f := range nodeFields {
		v := f.show(&n.Config)
		key := strings.ReplaceAll(f.flag, "-", "_")
		if d, ok := v.(time.Duration); ok {
			r = append(r, field{key + "_ms", f.flag, millis(d.Milliseconds())})
			continue
		}
		r = append(r, field{key, f.flag, v})
	}
	return append(r, field{"revision", "revision", n.Revision}, field{"created_at", "created", timestamp{n.CreatedAt}})
}

func (a *app) nodeCmd() *cobra.Command {
	create := &cobra.Command{
		Use: "create PATH", Short: "Create a coordination node and its missing parents", Args: cobra.ExactArgs(1),
		Example: "  signalbox node create /services/billing --grace-period 5s --self-check-period 500ms",
	}
	ifMissing := create.Flags().Bool("if-not-exists", false, "Succeed if the node exists; its configuration is not changed.")
	addNodeFlags(create.Flags())
	create.RunE = a.verb(func(inv *invocation, cmd *cobra.Command, args []string) error {
		cfg, err := nodeConfig(cmd)
		if err != nil {
			return err
		}
		c, err := inv.client()
		if err != nil {
			return err
		}
		make := c.CreateNode
		if *ifMissing {
			make = c.EnsureNode
		}
		n, err := make(inv.ctx, args[0], cfg)
		if err != nil {
			return err
		}
		return inv.printer().item(nodeRow(n))
	})

	alter := &cobra.Command{
		Use: "alter PATH", Short: "Change the configuration of a node; omitted fields stay", Args: cobra.ExactArgs(1),
		Example: "  signalbox node alter /services/billing --read-consistency strict --grace-period default",
	}
	addNodeFlags(alter.Flags())
	alter.RunE = a.verb(func(inv *invocation, cmd *cobra.Command, args []string) error {
		cfg, err := nodeConfig(cmd)
		if err != nil {
			return err
		}
		c, err := inv.client()
		if err != nil {
			return err
		}
		n, err := c.AlterNode(inv.ctx, args[0], cfg)
		if err != nil {
			return err
		}
		return inv.printer().item(nodeRow(n))
	})

	describe := &cobra.Command{Use: "describe PATH", Short: "Show a node and its effective configuration", Args: cobra.ExactArgs(1)}
	describe.RunE = a.verb(func(inv *invocation, _ *cobra.Command, args []string) error {
		c, err := inv.client()
		if err != nil {
			return err
		}
		n, err := c.DescribeNode(inv.ctx, args[0])
		if err != nil {
			return err
		}
		return inv.printer().item(nodeRow(n))
	})

	drop := &cobra.Command{
		Use: "drop PATH", Short: "Delete a node with its sessions and semaphores", Args: cobra.ExactArgs(1),
		Long: `Delete a node with its live sessions and held semaphores: each of its sessions expires. A node
created later under the same path is new and empty. Nodes below it must be dropped first.`,
	}
	drop.RunE = a.verb(func(inv *invocation, _ *cobra.Command, args []string) error {
		c, err := inv.client()
		if err != nil {
			return err
		}
		if err := c.DropNode(inv.ctx, args[0]); err != nil {
			return err
		}
		return inv.printer().message(row{{"path", "path", args[0]}, {"dropped", "dropped", true}}, "dropped %s", sanitize(args[0]))
	})

	ls := &cobra.Command{Use: "ls [PREFIX]", Short: "List nodes by path prefix", Args: cobra.MaximumNArgs(1)}
	ls.RunE = a.verb(func(inv *invocation, _ *cobra.Command, args []string) error {
		prefix := ""
		if len(args) == 1 {
			prefix = args[0]
		}
		c, err := inv.client()
		if err != nil {
			return err
		}
		var rows []row
		for n, err := range c.Nodes(inv.ctx, prefix) {
			if err != nil {
				return err
			}
			full := nodeRow(&n)
			if inv.values["output"] == "table" { // what fits on a line
				full = row{full[0], full[1], full[2], full[3], full[4], full[5], full[len(full)-1]}
			}
			rows = append(rows, full)
		}
		return inv.printer().list(rows, "no nodes")
	})

	c := group("node", "Coordination nodes: namespaces with a configuration", "Coordination nodes are namespaces with a path and a configuration. Semaphores and sessions of different nodes are independent.",
		create, alter, describe, drop, ls)
	for _, s := range c.Commands() {
		addFlags(s.Flags(), scopeClient)
	}
	return c
}
