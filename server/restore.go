package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server/backup"
	"github.com/signalbox-dev/signalbox/server/datafolder"
	"github.com/signalbox-dev/signalbox/shard/meta"
)

// restoreTimeout bounds a restore: the imports are written to the log like any other change, at the
// disk's pace.
const restoreTimeout = 24 * time.Hour

// Restored is the result of a restore.
type Restored struct {
	Tier                 string   // of the instance
	Sessions, Semaphores int      // in the backup's shards of it
	Left                 []string // tiers that are still to be restored
	// Tokens are those of the backup that the new cluster takes, by id, each with its identity.
	// Those that were revoked after the backup are among them.
	Tokens []meta.Token
	// AdminToken is the file of a new administrator's token, if all others were dropped.
	AdminToken string
	// OneCopy are the tiers of a new cluster whose replication factor in Config is above 1. They
	// begin with one copy; raise the factor before others join.
	OneCopy []meta.TierSpec
}

// RestoreOptions select the work of a restore beside the data.
type RestoreOptions struct {
	// DropTokens drops all tokens of the backup, in a new cluster. If the backup has authentication
	// on, the cluster gets a new administrator's token.
	DropTokens bool
	// KeepClients has running clients of the former cluster accept the new one, by its id. Their
	// sessions have ended, since they may rely on leases acquired after the backup. It is unsafe
	// while a process or a folder of the former cluster may still serve: clients would then work
	// with both.
	KeepClients bool
}

// Restore restores a backup to one instance, and closes that; [Start] with the same configuration
// serves it. Coordination nodes, rights, tokens, sessions with their semaphores and waiters, order
// counters and the memory of requests are the backup's. A session that was attached has its timeout
// and the grace period, as after a change of leader, and a detached one its remaining time; that
// time stands still until [Start]. The cluster has an id and keys of its own; order ids, other ids
// and the map's revision go on far above those of the backup.
//
// Without Peers, it makes a new cluster in an empty data folder. Config is that of the first
// instance: addresses, names, Shards, Tiers. The number of buckets and the cluster's name come from
// the backup, and the tiers too if there are none in Config and the backup has data in several.
// Each begins with one copy, for any replication factor of Config. After an error the folder is of
// no use; Start refuses it.
//
// An instance is of one tier. If others have data in the backup, the cluster serves nothing of them
// until each is restored, from the same backup: with Peers, on an instance that joins or has
// joined. After an error it may be repeated with the same folder.
//
// It listens to other instances with Peers, and else not at all.
func Restore(ctx context.Context, cfg Config, from *backup.Source, opts RestoreOptions) (Restored, error) {
	if cfg.Memory {
		return Restored{}, errors.New("a restore in memory is lost at its end; give a data folder")
	}
	if opts.KeepClients && len(cfg.Peers) > 0 {
		return Restored{}, errors.New("whether clients are kept belongs to the whole cluster, and was said where its first instance was restored; leave it out")
	}
	if opts.DropTokens && len(cfg.Peers) > 0 {
		return Restored{}, errors.New("tokens belong to the whole cluster; drop them where its first instance is restored, or by auth revoke")
	}
	// The first start writes the audit log.
	cfg.Buckets, cfg.Admin, cfg.Audit, cfg.Existing, cfg.restore = 0, Off, "", false, from
	cfg.keepClients = opts.KeepClients
	var oneCopy []meta.TierSpec
	var err error
	if cfg.joinsRestored() {
		cfg.Tiers = nil
	} else if oneCopy, err = foundRestored(&cfg); err != nil {
		return Restored{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, restoreTimeout)
	defer cancel()
	s, err := boot(ctx, cfg, restoreTier)
	if err != nil {
		return Restored{}, err
	}
	state := s.meta.State()
	own, _ := state.Instance(s.instance)
	t, _ := state.Tier(own.Tier)
	done := Restored{Tier: t.Name, OneCopy: oneCopy}
	done.Sessions, done.Semaphores = from.TierSizes(t.ID)
	for _, t := range state.Tiers() {
		if t.ToBeRestored() {
			done.Left = append(done.Left, t.Name)
		}
	}
	if opts.DropTokens {
		done.AdminToken, err = dropTokens(ctx, s)
	}
	done.Tokens, _ = s.meta.State().Tokens()
	if err = errors.Join(err, s.Close()); err != nil {
		return Restored{}, err
	}
	if s.cfg.inMemory() || s.cfg.joinsRestored() {
		return done, nil
	}
	return done, datafolder.ClearUnfinished(cfg.DataDir)
}

// foundRestored checks and completes the configuration of the instance that makes the cluster. It
// returns the tiers whose replication factor it lowers to 1.
func foundRestored(c *Config) (oneCopy []meta.TierSpec, err error) {
	if c.Disk == nil {
		if err := datafolder.CheckEmpty(c.DataDir); err != nil {
			return nil, err
		}
	}
	c.Cluster = cmp.Or(c.Cluster, c.restore.ClusterName())
	if err := restoreTiers(c); err != nil {
		return nil, err
	}
	for i := range c.Tiers {
		t := &c.Tiers[i]
		factor := cmp.Or(t.ReplicationFactor, uint32(max(c.ReplicationFactor, 0)))
		if t.Buckets > 0 && factor > 1 {
			orDefault(&t.ShardsPerReplicaset, c.tierShards(t, factor)) // for all the copies that it gets
			oneCopy = append(oneCopy, *t)
			oneCopy[len(oneCopy)-1].ReplicationFactor, t.ReplicationFactor = factor, 1
		}
	}
	return oneCopy, nil
}

// restoreTiers completes the tiers of a cluster that is made from a backup, and puts them in the
// order of their ids. A tier that has data in the backup is found by its name. It gets the id that
// it had, since that is in the ids of sessions, and as many buckets. If there is one such tier
// alone, and none has its name, it is the instance's.
func restoreTiers(c *Config) error {
	old, own := c.restore.Tiers(), cmp.Or(c.Tier, DefaultTier)
	data := slices.DeleteFunc(slices.Clone(old), func(t meta.Tier) bool { return t.Buckets == 0 })
	given := slices.Clone(c.Tiers)
	switch {
	case len(given) > 0:
	case len(data) == 1:
		given = []meta.TierSpec{{Name: own, Buckets: protocol.DefaultBuckets, CanVote: true}}
	default:
		for _, t := range old {
			given = append(given, meta.TierSpec{Name: t.Name, Buckets: t.Buckets, CanVote: t.CanVote})
		}
	}
	var names, oldNames []string
	for _, t := range given {
		names = append(names, t.Name)
	}
	for _, t := range old {
		oldNames = append(oldNames, t.Name)
	}
	c.Tiers = make([]meta.TierSpec, len(given))
	from := make([]int, len(given)) // 1 and more: where a tier was in the list
	for _, t := range data {
		i := slices.Index(names, t.Name)
		if i < 0 && len(data) == 1 {
			if i = slices.Index(names, own); i >= 0 && given[i].Buckets == 0 {
				i = -1
			}
		}
		switch {
		case i < 0:
			return fmt.Errorf(
				"the backup has data in tier %s, and the new cluster has the tiers %s; give it a tier %s with data too", t.Name,
				strings.Join(names, ", "), t.Name)
		case given[i].Buckets != protocol.DefaultBuckets && given[i].Buckets != t.Buckets:
			return fmt.Errorf("tier %s has %d buckets in the backup, and not %d; leave the number out",
				t.Name, t.Buckets, given[i].Buckets)
		case int(t.ID) >= len(given):
			return fmt.Errorf(
				"the data of the backup is that of the last of the tiers %s; give the new cluster at least %d tiers",
				strings.Join(oldNames[:t.ID+1], ", "), t.ID+1)
		}
		c.Tiers[t.ID], from[t.ID] = given[i], i+1
		c.Tiers[t.ID].Buckets = t.Buckets
	}
	for i, t := range given { // the others, in their order
		if !slices.Contains(from, i+1) {
			id := slices.Index(from, 0)
			c.Tiers[id], from[id] = t, i+1
		}
	}
	return nil
}

// restoreTier fills the shards of this instance's tier from the backup, and waits until they serve.
func restoreTier(s *Server, ctx context.Context) error {
	from, state := s.cfg.restore, s.meta.State()
	own, _ := state.Instance(s.instance)
	t, _ := state.Tier(own.Tier)
	if !t.ToBeRestored() && !s.cfg.joinsRestored() {
		return nil // the first instance has no data, or a tier that the backup did not have
	}
	if err := t.CheckRestore(from.Digest()); err != nil {
		return err
	}
	s.startup.waitForText("waiting for the shards of tier %s to begin here; see the cluster's plan", t.Name)
	var shards []meta.Shard
	if err := s.governor.Await(ctx, func(state *meta.State) bool {
		own, _ = state.Instance(s.instance)
		t, _ = state.Tier(own.Tier)
		shards = state.ShardsOf(own.Replicaset)
		return len(shards) > 0 || !t.ToBeRestored()
	}); err != nil {
		return fmt.Errorf("wait for the shards of tier %s: %w", t.Name, err)
	}
	if err := t.CheckRestore(from.Digest()); err != nil {
		return err // another instance was faster
	}
	var ids []uint64
	for i := range shards {
		if r, ok := shards[i].On(s.instance); !ok || !r.Founder {
			return fmt.Errorf("%s began on another instance of this replicaset; restore tier %s on that one",
				&shards[i], t.Name)
		}
		ids = append(ids, shards[i].ID)
	}
	s.startup.waitForText("restoring tier %s from the backup", t.Name)
	keep := state.ClientCluster() == from.ClientCluster()
	if err := from.Prepare(t.Restore.Wall, keep); err != nil {
		return err
	}
	if err := importTier(ctx, s, from, &t, ids); err != nil {
		return err
	}
	end := meta.TierRestored{Tier: t.ID, Backup: from.Digest(), Shards: ids, Tokens: from.HighestToken()}
	if err := s.governor.FinishRestore(ctx, end); err != nil {
		return fmt.Errorf("assign the restored buckets: %w", err)
	}
	s.startup.waitForText("waiting for the restored shards of tier %s to serve", t.Name)
	if err := s.governor.Await(ctx, func(state *meta.State) bool {
		return !slices.ContainsFunc(ids, func(id uint64) bool {
			x, _ := state.Shard(id)
			return !x.Ready
		})
	}); err != nil {
		return fmt.Errorf("wait for the restored shards of tier %s: %w", t.Name, err)
	}
	s.log.Info("tier restored", "tier", t.Name, "shards", len(ids))
	return nil
}

// importTier imports the backup's data of a tier to its shards here. It ends early when another
// instance has restored the tier: these shards are gone then.
func importTier(ctx context.Context, s *Server, from *backup.Source, t *meta.Tier, shards []uint64) error {
	ctx, cancel := context.WithCancel(ctx)
	var watching sync.WaitGroup
	watching.Go(func() {
		defer cancel()
		_ = s.governor.Await(ctx, func(state *meta.State) bool {
			now, _ := state.Tier(t.ID)
			return !now.ToBeRestored()
		})
	})
	err := s.hosting.Restore(ctx, from, t.ID, t.RestoredRuns(shards))
	cancel()
	watching.Wait()
	now, _ := s.meta.State().Tier(t.ID)
	if overtaken := now.CheckRestore(from.Digest()); overtaken != nil {
		return overtaken
	}
	return err
}
