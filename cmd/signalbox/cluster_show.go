package main

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/signalbox-dev/signalbox/cmd/signalbox/terminal"
	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard/replica/beat"
)

// watchInterval is how often status --watch asks.
const watchInterval = time.Second

// clearScreen puts a terminal's cursor at the top of an empty screen.
const clearScreen = "\x1b[H\x1b[2J"

// watchStatus shows the status whenever it has changed, until a signal. On a terminal the new one
// takes the place of the old one. While no answer comes, standard error says how old the shown one
// is.
func watchStatus(inv *invocation) error {
	p, err := inv.stream()
	if err != nil {
		return err
	}
	patience := min(inv.timeout, topTimeout)
	var shown []byte
	var answered time.Time
	stale := false
	for {
		ctx, cancel := context.WithTimeout(inv.longCtx, patience)
		if shown == nil {
			ctx = inv.ctx
		}
		s, err := readStatus(ctx, inv)
		late := ctx.Err() != nil
		cancel()
		switch {
		case inv.longCtx.Err() != nil:
			return nil
		case err != nil && late && shown != nil:
			stale = true
			inv.note("signalbox: no answer within %s; the status that is shown is %s old\n",
				patience, terminal.Age(time.Since(answered)))
			continue
		case err != nil:
			return err
		}
		answered = time.Now()
		var now bytes.Buffer
		if err := printStatus(&printer{w: &now, format: p.format, color: p.color}, s); err != nil {
			return err
		}
		if stale || !bytes.Equal(now.Bytes(), shown) {
			lead := ""
			switch {
			case p.format == "table" && terminal.Is(inv.stdout):
				lead = clearScreen
			case p.format == "table" && shown != nil:
				lead = "\n"
			}
			if _, err := io.WriteString(p.w, lead+now.String()); err != nil {
				return err
			}
			shown, stale = now.Bytes(), false
		}
		if !beat.Sleep(inv.longCtx, watchInterval) {
			return nil
		}
	}
}

// printStatus shows the cluster: in a table, tier by tier, replicaset by replicaset.
func printStatus(p *printer, s *protocol.ClusterStatus) error {
	if p.format != "table" {
		return p.document(s)
	}
	title := "cluster " + s.ID
	if s.Name != "" {
		title = fmt.Sprintf("cluster %s (%s)", terminal.Sanitize(s.Name), s.ID)
	}
	if s.Version != "" {
		title += ", version " + s.Version
	}
	var text strings.Builder // it takes every write
	out := p
	p = &printer{w: &text, format: p.format, color: p.color}
	_ = printHealthLines(p, &s.Health)
	leader := "without a leader"
	if s.Meta.Leader != "" {
		leader = "led by " + terminal.Sanitize(s.Meta.Leader)
	}
	fmt.Fprintf(p.w, "\n%s\nmeta shard: %s; voters: %s\n", title, leader, nameList(s.Meta.Voters))
	for i := range s.Tiers {
		printTier(p, s, &s.Tiers[i])
	}
	if len(s.Moves) > 0 {
		fmt.Fprintf(p.w, "\n%s\n", heading(p, "buckets that move"))
		_ = p.table(rowsOf(s.Moves, func(m *protocol.ClusterMove) row {
			return row{{"", "tier", m.Tier}, {"", "buckets", bucketRange(m.First, m.Count)},
				{"", "from shard", m.From}, {"", "to shard", m.To}, {"", "phase", m.Phase}}
		}))
	}
	_, err := io.WriteString(out.w, text.String())
	return err
}

func heading(p *printer, text string) string { return terminal.Paint(p.color, terminal.Bold, text) }

func printTier(p *printer, s *protocol.ClusterStatus, t *protocol.ClusterTier) {
	about := fmt.Sprintf("replication factor %d, %s", t.ReplicationFactor, count(uint64(t.Buckets), "bucket"))
	if !t.CanVote {
		about += ", no votes"
	}
	switch {
	case t.ToBeRestored != "":
		about += ", to be restored from the backup with digest " + terminal.Sanitize(t.ToBeRestored)
	case !t.Bootstrapped && t.Buckets > 0:
		about += ", waits for a replicaset to be ready"
	}
	fmt.Fprintf(p.w, "\n%s: %s\n", heading(p, "tier "+terminal.Sanitize(t.Name)), about)
	for i := range s.Replicasets {
		if set := &s.Replicasets[i]; set.Tier == t.Name && set.Phase != "expelled" {
			printReplicaset(p, s, t, set)
		}
	}
}

func printReplicaset(
	p *printer, s *protocol.ClusterStatus, t *protocol.ClusterTier, set *protocol.ClusterReplicaset,
) {
	about := set.Phase
	for _, c := range s.Health.Replicasets {
		if c.Replicaset == set.Name && c.Tier == set.Tier {
			about += fmt.Sprintf(", %d of %d copies", c.Copies, c.Configured)
			if c.ForMS > 0 {
				about += " for " + terminal.Age(time.Duration(c.ForMS)*time.Millisecond)
			}
		}
	}
	fmt.Fprintf(p.w, "\n%s: %s, weight %v, %s\n", heading(p, "replicaset "+terminal.Sanitize(set.Name)), about,
		set.Weight, count(uint64(set.Buckets), "bucket"))
	var instances, shards []row
	for i := range s.Instances {
		x := &s.Instances[i]
		if x.Replicaset != set.Name || x.Tier != set.Tier || x.Current == "Expelled" {
			continue
		}
		instances = append(instances, row{
			{"", "instance", x.Name}, {"", "state", instanceState(x, &s.Health)}, {"", "heard", heardText(x)},
			{"", "votes", slices.Contains(s.Meta.Voters, x.Name)},
			{"", "leads", countLed(x, &s.Health)}, {"", "version", cmp.Or(x.Version, "-")},
			{"", "failure domain", uncut(cmp.Or(domainText(x.Domain), "-"))}, {"", "address", uncut(x.Address)},
			{"", "since", timestamp{wallTime(x.ChangedAt)}}, {"", "reason", uncut(cmp.Or(x.Reason, "-"))},
		})
	}
	for i := range s.Shards {
		x := &s.Shards[i]
		if x.Replicaset != set.Name || x.Tier != set.Tier {
			continue
		}
		shards = append(shards, row{{"", "shard", x.ID}, {"", "state", shardState(x, &s.Health)},
			{"", "master", masterText(x, &s.Health)}, {"", "replicas", uncut(replicaText(x))}, {"", "buckets", x.Buckets}})
	}
	_ = p.table(instances)
	if n := len(shards); n > 0 && t.ShardsPerReplicaset > 0 && n != int(t.ShardsPerReplicaset) && set.Phase == "ready" {
		fmt.Fprintf(p.w, "\n%s? to be %d\n", count(uint64(n), "shard"), t.ShardsPerReplicaset)
	}
	if len(shards) > 0 {
		fmt.Fprintln(p.w)
		_ = p.table(shards)
	}
}

func printPlan(p *printer, x *protocol.ClusterPlan) error {
	if p.format != "table" {
		return p.document(x)
	}
	switch x.Health.State {
	case protocol.HealthHealthy:
		for _, l := range notices(&x.Health) {
			fmt.Fprintln(p.w, terminal.Sanitize(l))
		}
	case protocol.HealthDegraded, protocol.HealthBroken:
		if err := printHealthLines(p, &x.Health); err != nil {
			return err
		}
	}
	if len(x.Steps)+len(x.Waits) == 0 {
		_, err := fmt.Fprintln(p.w, "nothing to do")
		return err
	}
	if len(x.Steps) > 0 {
		fmt.Fprintln(p.w, heading(p, "next"))
		for _, s := range x.Steps {
			fmt.Fprintln(p.w, "  "+terminal.Sanitize(s))
		}
	}
	for _, k := range waitHeadings {
		first := true
		for _, w := range x.Waits {
			if w.Kind != k.kind {
				continue
			}
			if first {
				fmt.Fprintln(p.w, heading(p, k.heading))
				first = false
			}
			fmt.Fprintf(p.w, "  %s\n    %s\n", terminal.Sanitize(w.What), terminal.Sanitize(w.Why))
		}
	}
	return nil
}

// waitHeadings are the headings of the deviations that a plan does not mend now.
var waitHeadings = []struct{ kind, heading string }{
	{protocol.WaitInProgress, "under way"}, {protocol.WaitDependent, "follows"},
	{protocol.WaitExternal, "needs an instance, or an operator"},
}

// instanceRow is an instance in the answer to a change of it.
func instanceRow(i *protocol.ClusterInstance) row {
	return row{{"id", "", i.ID}, {"instance", "", i.Name}, {"uuid", "", i.UUID}, {"current", "", i.Current},
		{"target", "", i.Target}, {"leads", "", append([]uint64{}, i.Leads...)},
		{"draining", "", i.Draining}}
}

// instanceState is what an instance is, with a ? while it is to be something else, or is not heard.
func instanceState(i *protocol.ClusterInstance, h *protocol.ClusterHealth) string {
	text := i.Current
	for _, u := range h.Unreachable {
		if u.Instance == i.Name && text == "Online" {
			text += "? not heard"
			if u.ForMS > 0 {
				text += " for " + terminal.Age(time.Duration(u.ForMS)*time.Millisecond)
			}
			return text
		}
	}
	switch {
	case i.Current != i.Target:
		text += "? to be " + i.Target
	case !i.AtTarget():
		text += "? started again"
	}
	if i.Draining {
		text += ", drained"
	}
	return text
}

func heardText(i *protocol.ClusterInstance) string {
	switch {
	case i.Reachable == nil:
		return "?"
	case *i.Reachable:
		return "yes"
	}
	return "no"
}

// shardState reports whether a shard serves its buckets now.
func shardState(x *protocol.ClusterShard, h *protocol.ClusterHealth) string {
	for i := range h.Shards {
		switch g := &h.Shards[i]; {
		case g.Shard != x.ID:
		case !g.Majority:
			return fmt.Sprintf("no majority: %d of %d", g.Reachable, g.Voters)
		case g.Leader == "":
			return "no leader"
		case g.Idle:
			return "no buckets"
		case g.FaultTolerance < g.ConfiguredTolerance:
			return fmt.Sprintf("%d of %d voters", g.Reachable, g.Voters)
		case g.AtRisk():
			return "not without " + strings.Join(g.UnsafeDomains, ", ")
		default:
			return "works"
		}
	}
	return "-"
}

// countLed counts the shards that an instance is heard leading.
func countLed(i *protocol.ClusterInstance, h *protocol.ClusterHealth) (n int) {
	for _, g := range h.Shards {
		if g.Leader == i.Name {
			n++
		}
	}
	return n
}

// masterText returns the leader of a shard by the map, or the former one if it has no leader.
func masterText(x *protocol.ClusterShard, h *protocol.ClusterHealth) string {
	for _, g := range h.Shards {
		if g.Shard == x.ID && g.Leader == "" && x.Master != "" {
			return "none, was " + x.Master
		}
	}
	switch {
	case x.Master == x.TargetMaster && x.Master == "":
		return "none"
	case x.Master == x.TargetMaster, x.TargetMaster == "":
		return x.Master
	case x.Master == "":
		return "none? to be " + x.TargetMaster
	}
	return x.Master + "? to be " + x.TargetMaster
}

// replicaText lists a shard's replicas. It marks the replicas that are not voters, or not yet.
func replicaText(x *protocol.ClusterShard) string {
	list := make([]string, len(x.Replicas))
	for i, r := range x.Replicas {
		list[i] = r.Instance
		switch {
		case r.Role != r.TargetRole && r.TargetRole == "none":
			list[i] += " (? leaves)"
		case r.Role != r.TargetRole:
			list[i] += fmt.Sprintf(" (? to be %s)", r.TargetRole)
		case r.Role != "voter":
			list[i] += " (" + r.Role + ")"
		}
	}
	return strings.Join(list, ", ")
}

func nameList(list []string) string {
	if len(list) == 0 {
		return "none"
	}
	return terminal.Sanitize(strings.Join(list, ", "))
}

func domainText(d map[string]string) string {
	var parts []string
	for _, k := range slices.Sorted(maps.Keys(d)) {
		parts = append(parts, k+"="+d[k])
	}
	return strings.Join(parts, ",")
}

func bucketRange(first, count uint32) string {
	if count <= 1 {
		return fmt.Sprint(first)
	}
	return fmt.Sprintf("%d-%d", first, uint64(first)+uint64(count)-1)
}

// wallTime reads ms since 1970; 0 is none.
func wallTime(ms uint64) time.Time {
	if ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(int64(min(ms, 1<<62)))
}
