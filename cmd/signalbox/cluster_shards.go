package main

import (
	"cmp"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/signalbox-dev/signalbox/client/admin"
	"github.com/signalbox-dev/signalbox/cmd/signalbox/terminal"
	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/spf13/cobra"
)

func shardsCmd(a *app) *cobra.Command {
	c := command("shards [NUMBER]", "Show the data shards, or change how many a tier has",
		`Show the data shards of each tier: their leaders, how many buckets each owns and is to own, and
what is in them. With NUMBER, 1 to 64, change how many shards each replicaset of one tier has, now
and when another one joins. Needs the right admin on /.

Missing shards are created and get their part of the buckets. Surplus shards, the newest ones, are
removed when their buckets have moved to the others. Buckets move a few at a time, while clients
work: a call to a bucket that moves takes longer, and none fails. The command returns at once.
"signalbox cluster plan --until-done" returns when it is done. NUMBER may be changed again at any time.

With --dry-run nothing changes: it shows what NUMBER would do.

With NUMBER or --tier, -o json prints the document of one tier; otherwise an array of those of all
tiers with data.

A new cluster has a number of shards for its cores and its replication factor. The page
server/deploy/SIZING.md says which number fits which machine.`)
	c.Example = `  signalbox cluster shards
  signalbox cluster shards 3 --dry-run
  signalbox cluster shards 3
  signalbox cluster plan --until-done --timeout 10m`
	tier := c.Flags().String("tier", "",
		"The tier; default: all of them, and for NUMBER that of new coordination nodes.")
	dry := c.Flags().Bool("dry-run", false, "Show what would change, and change nothing.")
	c.RunE = a.verb(func(inv *invocation, _ *cobra.Command, args []string) error {
		n := uint64(0)
		if len(args) > 0 {
			var err error
			if n, err = strconv.ParseUint(args[0], 10, 32); err != nil || n < 1 || n > 64 {
				return usagef("%q is not a number of shards from 1 to 64", args[0])
			}
		} else if *dry {
			return usagef("--dry-run shows what a number of shards would change; give the number")
		}
		c, err := inv.admin()
		if err != nil {
			return err
		}
		if n == 0 && *tier == "" {
			return showTiers(inv, c)
		}
		change := (*admin.Client).Shards
		if n > 0 && !*dry {
			change = (*admin.Client).SetShards
		}
		x, err := change(c, inv.ctx, *tier, uint32(n))
		if err != nil {
			return err
		}
		return printShards(inv.printer(), x, *dry)
	})
	return c
}

// showTiers shows the shards of all tiers with data.
func showTiers(inv *invocation, c *admin.Client) error {
	status, err := c.Status(inv.ctx)
	if err != nil {
		return err
	}
	var all []*protocol.ClusterShards
	for _, t := range status.Tiers {
		if t.Buckets == 0 {
			continue
		}
		x, err := c.Shards(inv.ctx, t.Name, 0)
		if err != nil {
			return err
		}
		all = append(all, x)
	}
	p := inv.printer()
	if p.format == "json" {
		return p.document(all)
	}
	for i, x := range all {
		if i > 0 && p.format == "table" {
			fmt.Fprintln(p.w)
		}
		if err := printShards(p, x, false); err != nil {
			return err
		}
	}
	return nil
}

// printShards shows the shards of a tier, and the steps that remain or that a change would take.
func printShards(p *printer, x *protocol.ClusterShards, dry bool) error {
	if p.format != "table" {
		return p.document(x)
	}
	var text strings.Builder
	out := p
	p = &printer{w: &text, format: p.format, color: p.color}
	fmt.Fprintf(p.w, "%s: %s for each replicaset\n\n", heading(p, "tier "+terminal.Sanitize(x.Tier)),
		count(uint64(x.ShardsPerReplicaset), "shard"))
	rows := rowsOf(x.Shards, func(s *protocol.ClusterShardLoad) row {
		buckets := fmt.Sprint(s.Buckets)
		if s.Buckets != s.BucketsTarget {
			buckets += fmt.Sprintf("? to be %d", s.BucketsTarget)
		}
		master := cmp.Or(s.Master, "none")
		return row{{"", "shard", s.ID}, {"", "replicaset", s.Replicaset}, {"", "master", master},
			{"", "buckets", buckets}, {"", "sessions", known(s.Sessions)},
			{"", "remote", known(s.RemoteSessions)}, {"", "semaphores", known(s.Semaphores)}, {"", "size", knownSize(s.Bytes)}}
	})
	if len(rows) == 0 {
		fmt.Fprintln(p.w, "there are no shards yet")
	} else if err := p.table(rows); err != nil {
		return err
	}
	lines := shardChanges(x, dry)
	if len(lines) > 0 {
		fmt.Fprintln(p.w)
	}
	for _, l := range lines {
		fmt.Fprintln(p.w, terminal.Sanitize(l))
	}
	_, err := io.WriteString(out.w, text.String())
	return err
}

// shardChanges describes the steps that remain, or would be taken, in sentences.
func shardChanges(x *protocol.ClusterShards, dry bool) (lines []string) {
	add := func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) }
	gets, removed, move := "gets", "are removed when they are empty", "are to move"
	if dry {
		gets, removed, move = "would get", "would be removed when they are empty", "would move"
	}
	for _, r := range x.Replicasets {
		if r.Missing > 0 {
			add("replicaset %s %s %s more", r.Replicaset, gets, count(uint64(r.Missing), "shard"))
		}
		if len(r.Remove) > 0 {
			var ids []string
			for _, id := range r.Remove {
				ids = append(ids, strconv.FormatUint(id, 10))
			}
			add("of replicaset %s these shards %s: %s", r.Replicaset, removed, strings.Join(ids, ", "))
		}
		if r.Waits != "" {
			add("replicaset %s keeps its %s for now: %s", r.Replicaset, count(uint64(r.Shards), "shard"), r.Waits)
		}
	}
	if x.BucketsLeft > 0 {
		add("%s %s", count(uint64(x.BucketsLeft), "bucket"), move)
	}
	if dry {
		add("nothing was changed")
	}
	return lines
}

// count is a number with its noun.
func count(n uint64, noun string) string {
	if n != 1 {
		noun += "s"
	}
	return fmt.Sprintf("%d %s", n, noun)
}

func known(n *uint64) string {
	if n == nil {
		return "?"
	}
	return strconv.FormatUint(*n, 10)
}

func knownSize(n *uint64) string {
	if n == nil {
		return "?"
	}
	return sizeText(*n)
}
