package meta

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
)

// cluster runs the commands of scripts about the cluster. Instances and replicasets go by name, or
// by #id.
func (s *script) cluster(t *testing.T, d *datadriven.TestData) string {
	switch d.Cmd {
	case "join":
		c := &Join{UUID: s.text(d, "uuid"), Version: s.version(d, "version"),
			LastOfPreviousMajor: s.version(d, "follows"), Domain: s.domain(d), Wall: 2000}
		s.maybe(d, "name", &c.Name)
		s.maybe(d, "replicaset", &c.Replicaset)
		s.maybe(d, "tier", &c.Tier)
		s.maybe(d, "cluster", &c.Cluster)
		c.Address, c.RaftAddress = c.UUID+":7070", c.UUID+":7071"
		s.maybe(d, "raft", &c.RaftAddress)
		return s.apply(d, c)
	case "start", "online", "offline", "expel":
		i := s.instance(d, 0)
		c := &InstanceUpdate{Instance: i.ID, Target: Online, Reason: s.text(d, "reason"),
			Force: d.HasArg("force"), Wall: 3000}
		s.maybe(d, "expected", &c.Expected)
		switch d.Cmd {
		case "start":
			c.Start, c.Address, c.RaftAddress, c.Domain, c.Version, c.LastOfPreviousMajor =
				true, i.Address, i.RaftAddress, i.Domain, i.Version, s.version(d, "follows")
			s.maybe(d, "address", &c.Address)
			s.maybe(d, "raft", &c.RaftAddress)
			if d.HasArg("domain") {
				c.Domain = s.domain(d)
			}
			if d.HasArg("version") {
				c.Version = s.version(d, "version")
			}
		case "offline":
			c.Target, c.IfNotNeeded = Offline, d.HasArg("if-not-needed")
		case "expel":
			c.Target, c.Reason = Expelled, ReasonExpel
		}
		return s.apply(d, c)
	case "current":
		i := s.instance(d, 0)
		c := &InstanceCurrent{i.ID, i.Target}
		if n := s.numbers(d, "online"); n != nil {
			c.State = InstanceState{Online, n[0]}
		}
		return s.apply(d, c)
	case "drain":
		return s.apply(d, &InstanceDrain{s.instance(d, 0).ID, !d.HasArg("off")})
	case "cluster-version":
		return s.apply(d, &ClusterVersion{s.version(d, "version")})
	case "hold-upgrade":
		return s.apply(d, &UpgradeHold{!d.HasArg("off")})

	case "reassign":
		i := s.instance(d, 0)
		c := &InstanceReassign{Instance: i.ID, Expected: i.Revision}
		s.maybe(d, "expected", &c.Expected)
		to, _ := s.m.ReplicasetByName(s.text(d, "to"))
		c.Replicaset = to.ID
		return s.apply(d, c)
	case "shards-remove":
		return s.apply(d, &ShardsRemove{s.replicaset(d)})

	case "replicaset-ready":
		return s.apply(d, &ReplicasetIsReady{s.replicaset(d)})
	case "weight":
		return s.apply(d, &WeightSet{s.replicaset(d), uint32(s.numbers(d, "weight")[0]), d.HasArg("user")})
	case "replicaset-expel":
		return s.apply(d, &ReplicasetExpel{s.replicaset(d)})
	case "replicaset-expelled":
		return s.apply(d, &ReplicasetIsExpelled{s.replicaset(d), 4000})
	case "tier-replication-factor":
		return s.apply(d, &TierReplicationFactor{uint8(s.number(d, "tier")), uint32(s.number(d, "rf")), 6000})

	case "tier-shards":
		return s.apply(d, &TierShards{uint8(s.number(d, "tier")), uint32(s.number(d, "shards"))})
	case "shard-add":
		return s.apply(d, &ShardAdd{s.replicaset(d), s.instance(d, 1).ID, uint32(s.number(d, "has"))})
	case "shard-remove":
		return s.apply(d, &ShardRemove{s.shard(d)})

	case "shards-create":
		return s.apply(d, &ShardsCreate{s.replicaset(d), s.instance(d, 1).ID})
	case "replica-add":
		return s.apply(d, &ReplicaAdd{s.shard(d), s.instance(d, 1).ID, s.role(d, 2)})
	case "replica-target":
		return s.apply(d, &ReplicaTarget{s.shard(d), s.number(d, "replica"), s.role(d, 1)})
	case "replica-role":
		return s.apply(d, &ReplicaRole{s.shard(d), s.number(d, "replica"), s.role(d, 1)})
	case "master-target":
		return s.apply(d, &MasterTarget{s.shard(d), s.instance(d, 1).ID})
	case "master-current":
		return s.apply(d, &MasterCurrent{s.shard(d), s.instance(d, 1).ID})

	case "assign-buckets":
		return s.apply(d, &BucketsAssign{uint8(s.number(d, "tier"))})
	case "move-begin":
		return s.apply(d, &MoveBegin{uint8(s.number(d, "tier")), uint32(s.number(d, "first")),
			uint32(s.number(d, "count")), s.number(d, "from"), s.number(d, "to")})
	case "move-commit":
		return s.apply(d, &MoveCommit{s.moveRef(d)})
	case "move-abort":
		return s.apply(d, &MoveAbort{s.moveRef(d)})
	case "move-end":
		return s.apply(d, &MoveEnd{s.moveRef(d)})

	case "members":
		var out strings.Builder
		fmt.Fprintf(&out, "cluster %s version %s map version %d\n", s.m.ClusterName(),
			s.m.ClusterVersion(), s.m.MapVersion())
		for _, set := range s.m.Replicasets() {
			tier, _ := s.m.Tier(set.Tier)
			fmt.Fprintf(&out, "replicaset #%d %s of %s: %s, weight %d",
				set.ID, set.Name, tier.Name, set.Phase, set.Weight)
			if set.WeightByUser {
				out.WriteString(" by user")
			}
			out.WriteByte('\n')
			for _, i := range s.m.Instances() {
				if i.Replicaset == set.ID {
					fmt.Fprintf(&out, "  %s\n", instanceLine(&i))
				}
			}
		}
		return out.String()
	case "groups":
		var out strings.Builder
		x := s.m.MetaShard()
		fmt.Fprintf(&out, "%s\n", shardLine(&x))
		for _, x := range s.m.Shards() {
			fmt.Fprintf(&out, "%s\n", shardLine(&x))
		}
		return out.String()
	case "buckets":
		var out strings.Builder
		tier, _ := s.m.Tier(uint8(s.number(d, "tier")))
		for _, run := range tier.Runs {
			fmt.Fprintf(&out, "%d..%d: shard %d epoch %d\n", run.First, run.First+run.Count-1, run.Shard, run.Epoch)
		}
		for _, m := range s.m.Moves() {
			fmt.Fprintf(&out, "move %d..%d from %d to %d epoch %d: %s\n", m.First,
				m.First+m.Count-1, m.From, m.To, m.Epoch, m.Phase)
		}
		return out.String()
	case "shares":
		return fmt.Sprintf("%v\n", s.m.Shares(uint8(s.number(d, "tier"))))
	}
	d.Fatalf(t, "unknown command %s", d.Cmd)
	return ""
}

// instanceLine is an instance like "#2 b Offline(0) > Online(1) (wakeup) version 1.2.0 DC=MSK".
func instanceLine(i *Instance) string {
	out := fmt.Sprintf("#%d %s %s", i.ID, i.Name, i.Current)
	if i.Target != i.Current {
		out += fmt.Sprintf(" > %s", i.Target)
	}
	if i.Reason != "" {
		out += fmt.Sprintf(" (%s)", i.Reason)
	}
	if i.Drained {
		out += " drained"
	}
	return strings.TrimSpace(fmt.Sprintf("%s version %s %s", out, i.Version, formatDomain(i.Domain)))
}

// bootstrapMore reads tiers=(name:buckets:factor:shards, ...), those called mute without a vote;
// own=i, the instance's by its id, 0 if left out; domain and version.
func (s *script) bootstrapMore(d *datadriven.TestData, c *Bootstrap) {
	c.UUID, c.ClusterName = "u-one", s.text(d, "name")
	c.Domain, c.Version = s.domain(d), s.version(d, "version")
	for _, a := range d.CmdArgs {
		if a.Key != "tiers" {
			continue
		}
		c.TierID = uint8(s.number(d, "own"))
		for i, v := range a.Vals {
			spec := TierSpec{CanVote: true}
			n, err := fmt.Sscan(strings.ReplaceAll(v, ":", " "), &spec.Name, &spec.Buckets,
				&spec.ReplicationFactor, &spec.ShardsPerReplicaset)
			if n != 4 {
				d.Fatalf(s.t, "tier %s: %v", v, err)
			}
			if spec.CanVote = !strings.HasPrefix(spec.Name, "mute"); i != int(c.TierID) {
				c.Tiers = append(c.Tiers, spec)
				continue
			}
			c.Tier, c.Buckets, c.CanVote = spec.Name, spec.Buckets, spec.CanVote
			c.ReplicationFactor, c.ShardsPerReplicaset = spec.ReplicationFactor, spec.ShardsPerReplicaset
		}
	}
}

func (s *script) version(d *datadriven.TestData, key string) Version {
	if !d.HasArg(key) {
		return Version{}
	}
	v, err := ParseVersion(s.text(d, key))
	if err != nil {
		d.Fatalf(s.t, "%v", err)
	}
	return v
}

func (s *script) domain(d *datadriven.TestData) []Label {
	for _, a := range d.CmdArgs {
		if a.Key == "domain" {
			domain, err := ParseDomain(strings.Join(a.Vals, ","))
			if err != nil {
				d.Fatalf(s.t, "%v", err)
			}
			return domain
		}
	}
	return nil
}

func (s *script) arg(d *datadriven.TestData, i int) string {
	if i >= len(d.CmdArgs) {
		d.Fatalf(s.t, "argument %d is missing", i)
	}
	return d.CmdArgs[i].Key
}

func (s *script) id(d *datadriven.TestData, i int) (uint64, bool) {
	text, ok := strings.CutPrefix(s.arg(d, i), "#")
	id, err := strconv.ParseUint(text, 10, 64)
	return id, ok && err == nil
}

func (s *script) instance(d *datadriven.TestData, at int) Instance {
	if id, ok := s.id(d, at); ok {
		i, _ := s.m.Instance(id)
		i.ID = id
		return i
	}
	i, ok := s.m.InstanceByName(s.arg(d, at))
	if !ok {
		d.Fatalf(s.t, "no instance %s", s.arg(d, at))
	}
	return i
}

func (s *script) replicaset(d *datadriven.TestData) uint64 {
	if id, ok := s.id(d, 0); ok {
		return id
	}
	set, ok := s.m.ReplicasetByName(s.arg(d, 0))
	if !ok {
		d.Fatalf(s.t, "no replicaset %s", s.arg(d, 0))
	}
	return set.ID
}

// shard is the first argument: a number, or meta.
func (s *script) shard(d *datadriven.TestData) uint64 {
	if s.arg(d, 0) == "meta" {
		return MetaShardID
	}
	id, err := strconv.ParseUint(s.arg(d, 0), 10, 64)
	if err != nil {
		d.Fatalf(s.t, "%v", err)
	}
	return id
}

func (s *script) role(d *datadriven.TestData, at int) Role {
	for _, r := range []Role{RoleNone, RoleNonVoting, RoleVoter} {
		if s.arg(d, at) == r.String() {
			return r
		}
	}
	d.Fatalf(s.t, "no role %s", s.arg(d, at))
	return 0
}

func (s *script) number(d *datadriven.TestData, key string) uint64 {
	if n := s.numbers(d, key); n != nil {
		return n[0]
	}
	return 0
}

func (s *script) moveRef(d *datadriven.TestData) MoveRef {
	return MoveRef{uint8(s.number(d, "tier")), uint32(s.number(d, "first")), s.number(d, "epoch")}
}

// formatDomain writes a failure domain as ParseDomain reads it.
func formatDomain(domain []Label) string {
	parts := make([]string, len(domain))
	for i, l := range domain {
		parts[i] = l.Key + "=" + l.Value
	}
	return strings.Join(parts, ",")
}
