package main

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/admin"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// nodeField is a field of a node's configuration as a flag.
type nodeField struct {
	flag, help string
	set        func(c *admin.NodeConfig, text string) error
	value      func(c *admin.NodeConfig) any
}

// newNodeField describes a field. The word "default" sets the field to zero, which the server takes
// as the default.
func newNodeField[T any](
	flag, help string, at func(*admin.NodeConfig) **T, parse func(string) (T, error), show func(T) any,
) nodeField {
	return nodeField{
		flag: flag, help: help,
		set: func(c *admin.NodeConfig, text string) (err error) {
			v := new(T)
			if text != "default" {
				*v, err = parse(text)
			}
			*at(c) = v
			return err
		},
		value: func(c *admin.NodeConfig) any { return show(**at(c)) },
	}
}

// durationField and numberField take values from least on. A period or a quota is not 0: on the
// wire that would mean the default, which has a word of its own here.
func durationField(
	flag string, least time.Duration, help string, at func(*admin.NodeConfig) **time.Duration,
) nodeField {
	parse := func(text string) (time.Duration, error) {
		d, err := readDuration(text)
		if err == nil && d < least {
			err = fmt.Errorf("%q is not a duration from %s", text, least)
		}
		return d, err
	}
	return newNodeField(flag, help, at, parse, func(d time.Duration) any { return d })
}

func numberField(flag string, least uint64, help string, at func(*admin.NodeConfig) **uint64) nodeField {
	parse := func(text string) (uint64, error) {
		n, err := strconv.ParseUint(text, 10, 64)
		if err != nil || n < least {
			return 0, fmt.Errorf("%q is not a number from %d", text, least)
		}
		return n, nil
	}
	return newNodeField(flag, help, at, parse, func(n uint64) any { return n })
}

func choiceField[T comparable](flag, help string, from choices[T], at func(*admin.NodeConfig) **T) nodeField {
	return newNodeField(flag, help, at, from.parse, func(v T) any { return from.word(v) })
}

var (
	consistencies = choices[client.Consistency]{{"strict", client.Strict}, {"relaxed", client.Relaxed}}
	countersModes = choices[admin.CountersMode]{{"aggregated", admin.CountersAggregated},
		{"detailed", admin.CountersDetailed}}
)

var nodeFields = []nodeField{
	durationField("self-check-period", time.Millisecond,
		"How often a leader confirms its leadership, 500ms to 10s (default 1s)",
		func(c *admin.NodeConfig) **time.Duration { return &c.SelfCheckPeriod }),
	durationField("grace-period", time.Millisecond,
		"Time that a new leader adds to session timeouts after an unplanned leader change, self-check period + 1s to 30s (default 10s)",
		func(c *admin.NodeConfig) **time.Duration { return &c.GracePeriod }),
	choiceField("read-consistency",
		"Strict or relaxed (default relaxed): relaxed reads are faster, and may be stale by up to the grace period",
		consistencies, func(c *admin.NodeConfig) **client.Consistency { return &c.ReadConsistency }),
	choiceField("attach-consistency",
		"Strict or relaxed (default strict): a relaxed attach is answered before it is logged",
		consistencies, func(c *admin.NodeConfig) **client.Consistency { return &c.AttachConsistency }),
	choiceField("counters-mode",
		"Aggregated or detailed (default aggregated): detailed metrics have a series for each owner session",
		countersModes, func(c *admin.NodeConfig) **admin.CountersMode { return &c.CountersMode }),
	numberField("max-sessions", 1, "Maximum number of sessions (default 1000000)",
		func(c *admin.NodeConfig) **uint64 { return &c.MaxSessions }),
	numberField("max-semaphores", 1, "Maximum number of semaphores, ephemeral ones included (default 1000000)",
		func(c *admin.NodeConfig) **uint64 { return &c.MaxSemaphores }),
	numberField("max-bytes", 1,
		"Maximum bytes of names, data, descriptions and payloads, plus 256 or 512 for each record (default 4294967296)",
		func(c *admin.NodeConfig) **uint64 { return &c.MaxBytes }),
	numberField("max-waiters", 1, "Maximum number of waiting acquires (default 2000000)",
		func(c *admin.NodeConfig) **uint64 { return &c.MaxWaiters }),
	numberField("max-watchers", 1, "Maximum number of streams and one-shot watches (default 1000000)",
		func(c *admin.NodeConfig) **uint64 { return &c.MaxWatchers }),
	numberField("max-requests", 0,
		"Maximum requests per second at each instance, 0: no limit (default 0); keep-alives, releases and session ends are never refused",
		func(c *admin.NodeConfig) **uint64 { return &c.MaxRequests }),
	durationField("slow-wait", 0,
		"The server logs an acquire that waited longer, when its wait ends: 1ms to 24h, 0: off (default 0)",
		func(c *admin.NodeConfig) **time.Duration { return &c.SlowWait }),
	newNodeField("max-priority",
		"Highest priority that an acquire may ask for, 5 to 9, 0: any (default 0); an acquire without one has 5",
		func(c *admin.NodeConfig) **uint8 { return &c.MaxPriority },
		func(text string) (uint8, error) {
			n, err := strconv.ParseUint(text, 10, 8)
			if err != nil {
				return 0, fmt.Errorf("%q is not a number from 0 to 9", text)
			}
			return uint8(n), nil
		}, func(n uint8) any { return n }),
}

// nodeFlags adds a flag for each field, whose help ends with end. They set the fields of the
// configuration.
func nodeFlags(fs *pflag.FlagSet, end string) *admin.NodeConfig {
	c := new(admin.NodeConfig)
	for _, f := range nodeFields {
		fs.Func(f.flag, f.help+end, func(text string) error { return f.set(c, text) })
	}
	return c
}

func nodeRow(n *admin.NodeInfo) row {
	r := row{{"path", "path", n.Path}, {"id", "id", n.ID}, {"tier", "tier", n.TierName}}
	for _, f := range nodeFields {
		key, v := strings.ReplaceAll(f.flag, "-", "_"), f.value(&n.Config)
		if d, ok := v.(time.Duration); ok {
			key, v = key+"_ms", ms(d)
		}
		r = append(r, field{key, f.flag, v})
	}
	return append(r, field{"revision", "revision", n.Revision}, field{"created_at", "created", timestamp{n.CreatedAt}})
}

func nodeCmd(a *app) *cobra.Command {
	create := command("create PATH", "Create a coordination node and its missing parents", "")
	create.Example = "  signalbox node create /services/billing --grace-period 5s --self-check-period 500ms"
	ifMissing := create.Flags().Bool("if-not-exists", false,
		"Succeed if the node exists; its configuration is not changed.")
	tier := create.Flags().String("tier", "",
		"Tier that has the node's data, for good; by default the first one with data. See cluster status.")
	created := nodeFlags(create.Flags(), ".")
	create.RunE = a.clientVerb(func(inv *invocation, c *client.Client, args []string) error {
		make := admin.Nodes(c).Create
		if *ifMissing {
			make = admin.Nodes(c).Ensure
		}
		var opts []admin.NodeOption
		if *tier != "" {
			opts = append(opts, admin.InTier(*tier))
		}
		return inv.printNode(make(inv.ctx, args[0], *created, opts...))
	})

	alter := command("alter PATH", "Change the configuration of a node; omitted fields stay", "")
	alter.Example = "  signalbox node alter /services/billing --read-consistency strict --grace-period default"
	altered := nodeFlags(alter.Flags(), `; "default" resets it.`)
	alter.RunE = a.clientVerb(func(inv *invocation, c *client.Client, args []string) error {
		if *altered == (admin.NodeConfig{}) {
			return usagef("no option is given; the form is: %s", usageLine(alter))
		}
		return inv.printNode(admin.Nodes(c).Alter(inv.ctx, args[0], *altered))
	})

	describe := command("describe PATH", "Show a node and its effective configuration", "")
	describe.RunE = a.clientVerb(func(inv *invocation, c *client.Client, args []string) error {
		return inv.printNode(admin.Nodes(c).Describe(inv.ctx, args[0]))
	})

	del := command("delete PATH", "Delete a node with all that it has",
		`Delete a node. One that is in use, because it has sessions or keeps semaphores, configurations,
processes, rollouts or rate limits, is refused without --force. With it, all of that is gone for
good: its sessions end, and their clients lose what they hold. A node created later under the same
path is new and empty; its fencing tokens go on above those of this one. Nodes below it must be
deleted first. Configurations, services and elections are counted as semaphores.`)
	del.Example = `  signalbox node delete /services/billing --dry-run
  signalbox node delete /services/billing --force --reason 'the service is gone'`
	g := addGuard(del, "node delete")
	del.RunE = a.clientVerb(func(inv *invocation, c *client.Client, args []string) error {
		if err := g.check(); err != nil {
			return err
		}
		had, err := admin.Nodes(c).Delete(inv.ctx, args[0],
			admin.DeleteOptions{Force: g.force && !g.dryRun, Reason: g.reason, DryRun: g.dryRun})
		r := row{{"path", "path", args[0]}, {"deleted", "deleted", !g.dryRun}, {"dry_run", "", g.dryRun},
			{"sessions", "", had.Sessions}, {"semaphores", "", had.Semaphores}, {"owners", "", had.Owners},
			{"waiters", "", had.Waiters},
			{"processes", "", had.Processes}, {"rollouts", "", had.Tracks}, {"rate_limits", "", had.Limits}}
		if g.dryRun {
			return inv.report(err, r, "dry run: with %s would go: %s", args[0], &had)
		}
		return inv.report(err, r, "deleted %s; with it went: %s", args[0], &had)
	})

	ls := command("ls [PREFIX]", "List nodes by path prefix", "")
	ls.RunE = a.clientVerb(func(inv *invocation, c *client.Client, args []string) error {
		return inv.list(each(admin.Nodes(c).List(inv.ctx, strings.Join(args, "")), func(n *admin.NodeInfo) row {
			r := nodeRow(n)
			if inv.values["output"] == "table" { // what fits on a line
				r = append(r[:7], r[len(r)-1])
			}
			return r
		}), "no nodes")
	})

	return group("node", "Coordination nodes: namespaces with a configuration",
		"Coordination nodes are namespaces with a path and a configuration. Semaphores and sessions of different nodes are independent.",
		create, alter, describe, del, ls)
}

func (inv *invocation) printNode(n *admin.NodeInfo, err error) error {
	if err != nil {
		return err
	}
	return inv.printer().item(nodeRow(n))
}
