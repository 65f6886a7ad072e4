package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/signalbox-dev/signalbox/client/admin"
	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard/replica/beat"
	"github.com/spf13/cobra"
)

const (
	// pollInterval is how often the status is asked for while a change is waited for.
	pollInterval = 200 * time.Millisecond
	// quietPolls is how many plans in a row must have nothing left: the first may be from before
	// the last change.
	quietPolls = 3
	// maxQuietPolls is the same if that leaves something wrong: heartbeats and elections take
	// seconds.
	maxQuietPolls = 15
)

// ownTimeouts are the defaults of --timeout for verbs that move or read much data.
var ownTimeouts = map[string]string{"drain": "60s", "expel": "60s", "transfer": "60s", "backup": "10m"}

func clusterCmd(a *app) *cobra.Command {
	status := command("status", "Show tiers, replicasets, instances, shards and bucket moves",
		`Show tiers, replicasets, instances, shards and bucket moves from the cluster map of the instance
that answers. A ? marks a state that differs from its target. Expelled instances are shown by -o
json only.

The first lines and the exit code are those of cluster health.`)
	status.Example = "  signalbox cluster status --watch"
	watch := status.Flags().Bool("watch", false,
		"Show the status again after each change, until interrupted. Standard error says when no instance answers.")
	status.RunE = a.verb(func(inv *invocation, _ *cobra.Command, _ []string) error {
		if *watch {
			return watchStatus(inv)
		}
		s, err := readStatus(inv.ctx, inv)
		if err != nil {
			return err
		}
		if err := printStatus(inv.printer(), s); err != nil {
			return err
		}
		return healthCode(&s.Health)
	})

	plan := command("plan", "Show the cluster's next steps, and what is blocked and why",
		`Show every deviation of the cluster from its configuration: the steps that it takes next by
itself, and the steps that are blocked, with the reason.

With --until-done it returns when the present instances have nothing left to do: they have their
replicas, votes, leaderships and buckets. The exit code is then that of cluster health. Scripts
use it between two steps of a change; it waits at most for --timeout.`)
	plan.Example = `  signalbox cluster plan
  signalbox cluster plan --until-done --timeout 10m`
	wait := plan.Flags().Bool("until-done", false, "Return when the present instances have nothing left to do.")
	plan.RunE = a.adminVerb(func(inv *invocation, c *admin.Client, _ []string) error {
		p, err := c.Plan(inv.ctx)
		for quiet := 0; *wait && err == nil; p, err = c.Plan(inv.ctx) {
			if quiet++; busy(p) {
				quiet = 0
			}
			if quiet == maxQuietPolls || quiet >= quietPolls && healthCode(&p.Health) == nil {
				break
			}
			if !beat.Sleep(inv.ctx, pollInterval) {
				_ = printPlan(inv.printer(), p)
				return &codeError{code: exitError, err: errors.New("the timeout ended before the cluster was done; it continues")}
			}
		}
		if err != nil {
			return err
		}
		if err := printPlan(inv.printer(), p); err != nil || !*wait {
			return err
		}
		return healthCode(&p.Health)
	})

	c := group("cluster", "The cluster: instances, shards, and changes to them",
		`The cluster manages itself. A change is decided in the cluster's log and continues
whether or not a client waits for it. INSTANCE is a name or a uuid.`,
		status, healthCmd(a), plan, drainCmd(a), undrainCmd(a), expelCmd(a), transferCmd(a), weightCmd(a), shardsCmd(a),
		upgradeCmd(a), replicationFactorCmd(a), rotateKeysCmd(a), backupCmd(a), restoreCmd(a), recoverCmd(a))
	for _, s := range c.Commands() {
		if given, ok := ownTimeouts[s.Name()]; ok {
			f := s.Flags().Lookup("timeout")
			f.DefValue = given
			_ = f.Value.Set(given) // a string takes any
		}
	}
	return c
}

// busy reports whether the present instances have something to do.
func busy(p *protocol.ClusterPlan) bool {
	return len(p.Steps) > 0 || slices.ContainsFunc(p.Waits, func(w protocol.ClusterWait) bool {
		return w.Kind == protocol.WaitInProgress
	})
}

func drainCmd(a *app) *cobra.Command {
	c := command("drain INSTANCE", "Move an instance's leaderships and vote to others",
		`Move the shards that an instance leads, and its vote, to other instances. It gets none again until
its next start or cluster undrain. It continues to serve as a replica. The command waits until it leads
nothing.`)
	c.Example = "  signalbox cluster drain default_1_2"
	c.RunE = a.adminVerb(func(inv *invocation, c *admin.Client, args []string) error {
		i, err := c.Drain(inv.ctx, args[0])
		if err != nil {
			return err
		}
		i, err = awaitInstance(inv, i,
			"the instance still leads shards; they are moved as soon as other instances can take them",
			func(i *protocol.ClusterInstance) bool { return len(i.Leads) == 0 })
		return inv.report(err, instanceRow(i), "%s leads nothing any more", i.Name)
	})
	return c
}

func undrainCmd(a *app) *cobra.Command {
	c := command("undrain INSTANCE", "Allow a drained instance to lead and vote again", "")
	c.RunE = a.adminVerb(func(inv *invocation, c *admin.Client, args []string) error {
		i, err := c.Undrain(inv.ctx, args[0])
		if err != nil {
			return err
		}
		return inv.printer().message(instanceRow(i), "%s may lead and vote again", i.Name)
	})
	return c
}

func expelCmd(a *app) *cobra.Command {
	c := command("expel INSTANCE", "Remove an instance from the cluster for good",
		`Remove an instance from the cluster for good, and wait until it is removed. Its leaderships and
its vote move to other instances first. So do its buckets if it is the last of its replicaset. An
expelled process stops, and its data folder cannot be used again.

An instance that is up, or that leads shards, is refused without --force. In any case it is refused
if a shard with data, or the cluster, has no majority or would have none without it, or if its
buckets have nowhere to go. The error names what to do first. No data is lost either way.`)
	c.Example = "  signalbox cluster expel default_1_2 --timeout 10m"
	g := addGuard(c, "cluster expel")
	c.RunE = a.adminVerb(func(inv *invocation, c *admin.Client, args []string) error {
		if err := g.check(); err != nil {
			return err
		}
		i, err := c.WithReason(g.reason).Expel(inv.ctx, args[0], g.force)
		if err != nil {
			return err
		}
		i, err = awaitInstance(inv, i, "the instance is not expelled yet; the cluster continues",
			func(i *protocol.ClusterInstance) bool { return i.Current == "Expelled" })
		return inv.report(err, instanceRow(i), "expelled %s", i.Name)
	})
	return c
}

func transferCmd(a *app) *cobra.Command {
	c := command("transfer SHARD INSTANCE", "Move the leadership of a shard",
		"Move the leadership of a shard to another instance of its replicaset, and wait until it leads. Other leaderships may move in return, to stay evenly spread.")
	c.Example = "  signalbox cluster transfer 2 default_1_2"
	c.RunE = a.verb(func(inv *invocation, _ *cobra.Command, args []string) error {
		shard, err := strconv.ParseUint(args[0], 10, 64)
		if err != nil || shard == 0 {
			return usagef("%q is not the number of a shard; `signalbox cluster status` shows them", args[0])
		}
		c, err := inv.admin()
		if err != nil {
			return err
		}
		x, err := c.Transfer(inv.ctx, shard, args[1])
		if err != nil {
			return err
		}
		var master string
		var kept error
		moved := func(s *protocol.ClusterStatus) (over bool) {
			master, over, kept = transferOutcome(s, shard, args[1])
			return over
		}
		err = awaitStatus(inv, "the shard has not moved yet; the cluster continues", x.Revision, moved)
		return inv.report(cmp.Or(err, kept), row{{"shard", "", shard}, {"master", "", master}}, "shard %d is led by %s",
			shard, master)
	})
	return c
}

// transferOutcome is how the transfer of a shard's leadership to an instance, by its name or uuid,
// stands. An error says that it is over and another instance leads: the governor keeps the leader
// if the other instance goes, or is behind.
func transferOutcome(s *protocol.ClusterStatus, shard uint64, to string) (master string, over bool, err error) {
	i := slices.IndexFunc(s.Shards, func(x protocol.ClusterShard) bool { return x.ID == shard })
	if i < 0 {
		return "", true, fmt.Errorf("shard %d was removed; `signalbox cluster status` shows the shards", shard)
	}
	x := &s.Shards[i]
	moved := x.Master == to || slices.ContainsFunc(s.Instances,
		func(in protocol.ClusterInstance) bool { return in.UUID == to && in.Name == x.Master })
	switch {
	case x.Master != x.TargetMaster:
		return x.Master, false, nil
	case !moved:
		return x.Master, true, fmt.Errorf(
			"shard %d is led by %s: %s could not take it over; see `signalbox cluster plan`, and try again when it has caught up",
			shard, cmp.Or(x.Master, "nobody"), to)
	}
	return x.Master, true, nil
}

func weightCmd(a *app) *cobra.Command {
	c := command("weight REPLICASET WEIGHT", "Set a replicaset's share of the buckets",
		`Set the weight of a replicaset: its share of its tier's buckets, relative to the other
replicasets. A new replicaset has weight 1; 0 moves all its buckets away. Buckets move gradually,
while clients work.`)
	c.Example = "  signalbox cluster weight default_2 0.5"
	c.RunE = a.verb(func(inv *invocation, _ *cobra.Command, args []string) error {
		w, err := strconv.ParseFloat(args[1], 64)
		if err != nil || !(w >= 0 && w <= 1_000_000) {
			return usagef("%q is not a weight; give a number from 0 to 1000000, to the thousandth", args[1])
		}
		c, err := inv.admin()
		if err != nil {
			return err
		}
		set, err := c.SetWeight(inv.ctx, args[0], w)
		if err != nil {
			return err
		}
		return inv.printer().message(row{{"replicaset", "", set.Name}, {"weight", "", set.Weight},
			{"buckets", "", set.Buckets}},
			"%s has weight %v, and %s for now", set.Name, set.Weight, count(uint64(set.Buckets), "bucket"))
	})
	return c
}

func replicationFactorCmd(a *app) *cobra.Command {
	c := command("replication-factor TIER FACTOR", "Change how many instances host each shard of a tier",
		`Change how many instances each replicaset of a tier gets. Replicasets are filled with spare
instances and with those that join later. An instance is spare if its own replicaset is incomplete
and has no buckets. No instance leaves a replicaset that has more members.

A lower factor is refused without --force: with fewer copies a later loss may be permanent.`)
	c.Example = "  signalbox cluster replication-factor default 3"
	g := addGuard(c, "cluster replication-factor")
	c.RunE = a.verb(func(inv *invocation, _ *cobra.Command, args []string) error {
		n, err := strconv.ParseUint(args[1], 10, 32)
		if err != nil || n < 1 || n > 64 {
			return usagef("%q is not a number of instances from 1 to 64", args[1])
		}
		c, err := inv.admin()
		if err != nil {
			return err
		}
		if err := g.check(); err != nil {
			return err
		}
		t, err := c.WithReason(g.reason).SetReplicationFactor(inv.ctx, args[0], uint32(n), g.force)
		if err != nil {
			return err
		}
		s, err := c.Status(inv.ctx)
		if err != nil {
			return err
		}
		missing := missingInstances(s, t)
		text := "tier %s has replication factor %d"
		if missing > 0 {
			text += fmt.Sprintf("; start %s more, or lower the factor", count(uint64(missing), "instance"))
		}
		return inv.printer().message(row{{"tier", "", t.Name}, {"replication_factor", "", t.ReplicationFactor},
			{"missing_instances", "", missing}}, text, t.Name, t.ReplicationFactor)
	})
	return c
}

// missingInstances returns how many instances a tier lacks to fill the replicasets that have buckets.
// An instance of a replicaset without buckets is spare.
func missingInstances(s *protocol.ClusterStatus, t *protocol.ClusterTier) (missing int) {
	for _, set := range s.Replicasets {
		if set.Tier != t.Name || set.Phase == "expelled" {
			continue
		}
		members := 0
		for _, i := range s.Instances {
			if i.Replicaset == set.Name && i.Tier == set.Tier && i.Target != "Expelled" {
				members++
			}
		}
		if set.Buckets == 0 {
			missing -= members
		} else {
			missing += max(0, int(t.ReplicationFactor)-members)
		}
	}
	return max(0, missing)
}

func rotateKeysCmd(a *app) *cobra.Command {
	c := command("rotate-keys", "Sign session tickets with a new key",
		`Sign session tickets with a new key. A ticket proves to an instance that a session is attached at
another one; each attach returns one.

Tickets signed with the previous key stay valid until the next rotation, so no client has to
attach again. Two rotations invalidate every older ticket. Connected clients then attach again and
continue. Tickets of ended sessions, and tickets forged with a key from a lost backup, stay
invalid.`)
	c.Example = "  signalbox cluster rotate-keys"
	c.RunE = a.adminVerb(func(inv *invocation, c *admin.Client, _ []string) error {
		key, err := c.RotateTicketKey(inv.ctx)
		return inv.report(err, row{{"key", "", key}}, "tickets are signed with key %d", key)
	})
	return c
}

func readStatus(ctx context.Context, inv *invocation) (*protocol.ClusterStatus, error) {
	c, err := inv.admin()
	if err != nil {
		return nil, err
	}
	return c.Status(ctx)
}

// awaitInstance polls the cluster until done is true of an instance. An instance that is not listed
// any more was expelled.
func awaitInstance(
	inv *invocation, i *protocol.ClusterInstance, late string, done func(i *protocol.ClusterInstance) bool,
) (*protocol.ClusterInstance, error) {
	last := *i
	last.Current, last.Target, last.Leads = "Expelled", "Expelled", nil
	err := awaitStatus(inv, late, i.Revision, func(s *protocol.ClusterStatus) bool {
		for j := range s.Instances {
			if s.Instances[j].ID == i.ID {
				last = s.Instances[j]
				return done(&last)
			}
		}
		return true
	})
	return &last, err
}

// awaitStatus polls the cluster until done is true of a status that includes the change with the
// revision. late is the error's sentence when the time is over; the cluster continues with the
// change.
func awaitStatus(inv *invocation, late string, revision uint64, done func(s *protocol.ClusterStatus) bool) error {
	for {
		s, err := readStatus(inv.ctx, inv)
		if err == nil && s.Revision >= revision && done(s) {
			return nil
		}
		if err != nil && inv.ctx.Err() == nil {
			return err
		}
		if !beat.Sleep(inv.ctx, pollInterval) {
			return &codeError{code: exitError, err: fmt.Errorf("%s; see `signalbox cluster plan`", late)}
		}
	}
}
