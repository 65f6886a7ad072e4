package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/signalbox-dev/signalbox/server/backup"
	"github.com/signalbox-dev/signalbox/server/datafolder"
)

// restoreTimeout bounds a restore: the imports are written to the log like any other change, at the
// disk's pace.
const restoreTimeout = 24 * time.Hour

// Restore makes a new cluster of one instance in an empty data folder from a backup, and closes it;
// [Start] with the same configuration serves it. Coordination nodes, rights, tokens, sessions with
// what they hold and wait for, order counters and the memory of requests are the backup's. A
// session that was attached has its timeout and the grace period, as after a change of leader, and
// another one what was left of its time; that time stands still until [Start]. The cluster has an
// id and keys of its own; order ids, other ids and the map's revision go on far above those of the
// backup.
//
// Config is that of the first instance: addresses, names, Shards, Tiers; Buckets and the cluster's
// name come from the backup. Peers and a replication factor above 1 are refused. After an error the
// folder is of no use; Start refuses it.
func Restore(ctx context.Context, cfg Config, from *backup.Source) error {
	switch {
	case len(cfg.Peers) > 0:
		return errors.New("a backup is restored to one instance, without peers; let the others join it afterwards")
	case cfg.ReplicationFactor > 1:
		return errRestoredCopies(uint32(cfg.ReplicationFactor))
	case cfg.Memory:
		return errors.New("a restore in memory is lost at its end; give a data folder")
	}
	for _, t := range cfg.Tiers {
		if t.Name == cmp.Or(cfg.Tier, DefaultTier) && t.ReplicationFactor > 1 {
			return errRestoredCopies(t.ReplicationFactor)
		}
	}
	if cfg.Disk == nil {
		if err := datafolder.CheckEmpty(cfg.DataDir); err != nil {
			return err
		}
	}
	cfg.Buckets, cfg.Admin, cfg.restore = from.Buckets(), Off, from
	if cfg.Cluster == "" {
		cfg.Cluster = from.ClusterName()
	}
	ctx, cancel := context.WithTimeout(ctx, restoreTimeout)
	defer cancel()
	s, err := boot(ctx, cfg)
	if err != nil {
		return err
	}
	if err := s.Close(); err != nil {
		return err
	}
	if s.cfg.inMemory() {
		return nil
	}
	return datafolder.ClearUnfinished(cfg.DataDir)
}

func errRestoredCopies(factor uint32) error {
	return fmt.Errorf(
		"a backup is restored to one instance, so the replication factor is 1 and not %d; raise it when others have joined", factor)
}
