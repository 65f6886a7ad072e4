package server

import (
	"cmp"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard/meta"
)

// ParseTier reads a tier of Config.Tiers: its name, and after colons the settings other than
// default, as in data:factor=3:vote=false or arbiter:buckets=0. Without them, the tier votes, and
// Config.ReplicationFactor and Config.Buckets count for a tier with buckets. Ranges are checked
// with the rest of the configuration.
func ParseTier(text string) (meta.TierSpec, error) {
	name, options, _ := strings.Cut(text, ":")
	t := meta.TierSpec{Name: strings.TrimSpace(name), Buckets: protocol.DefaultBuckets, CanVote: true}
	if options == "" && !strings.Contains(text, ":") {
		return t, nil
	}
	given := map[string]bool{}
	for option := range strings.SplitSeq(options, ":") {
		key, value, ok := strings.Cut(option, "=")
		var n uint64
		var err error
		if key == "vote" {
			t.CanVote, err = strconv.ParseBool(value)
		} else {
			n, err = strconv.ParseUint(value, 10, 32)
		}
		if !ok || err != nil || given[key] {
			return t, fmt.Errorf("tier %q: write it as NAME, with :factor=N, :buckets=N or :vote=false behind it", text)
		}
		given[key] = true
		switch key {
		case "vote":
		case "factor":
			t.ReplicationFactor = uint32(n)
			if n == 0 {
				return t, fmt.Errorf("tier %q: factor is 0; choose 1 to %d", text, maxReplication)
			}
		case "buckets":
			t.Buckets = uint32(n)
		default:
			return t, fmt.Errorf("tier %q has no option %q; the options are factor, buckets and vote", text, key)
		}
	}
	return t, nil
}

// fillTiers completes the tiers of a new cluster, by default one.
func (c *Config) fillTiers() {
	if len(c.Tiers) == 0 {
		c.Tiers = []meta.TierSpec{{Name: c.Tier, Buckets: c.Buckets, CanVote: true}}
	}
	c.Tiers = slices.Clone(c.Tiers)
	for i := range c.Tiers {
		t := &c.Tiers[i]
		if t.Buckets == 0 {
			orDefault(&t.ReplicationFactor, 1) // nothing is copied: each of its instances counts by itself
			continue
		}
		if t.Buckets == protocol.DefaultBuckets {
			t.Buckets = c.Buckets
		}
		orDefault(&t.ReplicationFactor, uint32(c.ReplicationFactor))
		orDefault(&t.ShardsPerReplicaset, c.tierShards(t, t.ReplicationFactor))
	}
}

// tierShards is how many shards each replicaset of a tier gets that is to have a replication factor.
func (c *Config) tierShards(t *meta.TierSpec, factor uint32) uint32 {
	return uint32(cmp.Or(c.Shards, min(DefaultShards(runtime.GOMAXPROCS(0), int(factor)), int(t.Buckets))))
}

// checkTiers checks the tiers that a new cluster gets.
func (c *Config) checkTiers() error {
	if len(c.Tiers) > meta.MaxTiers {
		return fmt.Errorf("%d tiers are given; there may be %d", len(c.Tiers), meta.MaxTiers)
	}
	var names []string
	data, votes := false, false
	for _, t := range c.Tiers {
		if err := checkName("tier", t.Name); err != nil {
			return err
		}
		switch {
		case t.Name == "" || slices.Contains(names, t.Name):
			return fmt.Errorf("tier %q has no name of its own; give each tier one", t.Name)
		case t.ReplicationFactor > maxReplication:
			return fmt.Errorf("replication factor of tier %s is %d; choose 1 to %d", t.Name, t.ReplicationFactor,
				maxReplication)
		case t.Buckets > meta.MaxBuckets:
			return fmt.Errorf("tier %s has %d buckets; choose 0 to %d", t.Name, t.Buckets, meta.MaxBuckets)
		case t.Buckets > 0 && t.Buckets < t.ShardsPerReplicaset:
			return fmt.Errorf("%d buckets of tier %s cannot be assigned to %d shards; give more buckets",
				t.Buckets, t.Name, t.ShardsPerReplicaset)
		}
		names = append(names, t.Name)
		data, votes = data || t.Buckets > 0, votes || t.CanVote
	}
	switch {
	case !data:
		return fmt.Errorf("none of the tiers %s has buckets; at least one must have data", strings.Join(names, ", "))
	case !votes:
		return fmt.Errorf("none of the tiers %s may vote; at least one must", strings.Join(names, ", "))
	case !slices.Contains(names, c.Tier):
		return fmt.Errorf("this instance's tier is %q, and the tiers are %s; choose one of them", c.Tier,
			strings.Join(names, ", "))
	}
	if c.restore != nil && !c.joinsRestored() && !c.mayFound() {
		return fmt.Errorf("an instance of tier %s makes no cluster; restore the backup to one of tier %s first, "+
			"and then to this one with --peer", c.Tier, strings.Join(c.foundingTiers(), " or "))
	}
	return nil
}

// ownTier is the tier of this instance, and its id in a cluster that the instance makes: its place.
func (c *Config) ownTier() (t meta.TierSpec, id uint8) {
	i := slices.IndexFunc(c.Tiers, func(t meta.TierSpec) bool { return t.Name == c.Tier })
	return c.Tiers[i], uint8(i)
}

// mayFound reports whether this instance may make the cluster.
func (c *Config) mayFound() bool { return slices.Contains(c.foundingTiers(), c.Tier) }

// foundingTiers are the tiers whose instances may make the cluster: they vote and have data.
// Where no tier has both, one that votes is enough.
func (c *Config) foundingTiers() (names []string) {
	both := slices.ContainsFunc(c.Tiers, func(t meta.TierSpec) bool { return t.CanVote && t.Buckets > 0 })
	for _, t := range c.Tiers {
		if t.CanVote && (t.Buckets > 0 || !both) {
			names = append(names, t.Name)
		}
	}
	return names
}

// otherTiers are the tiers of a new cluster beside this instance's.
func (c *Config) otherTiers() []meta.TierSpec {
	return slices.DeleteFunc(slices.Clone(c.Tiers), func(t meta.TierSpec) bool { return t.Name == c.Tier })
}

// joinsRestored reports whether this is a restore of one more tier, in a cluster that exists. Its
// folder needs no mark: the map has one, and gives no buckets to the shards before they have their
// data.
func (c *Config) joinsRestored() bool { return c.restore != nil && len(c.Peers) > 0 }
