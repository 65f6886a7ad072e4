package backup

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard"
	"github.com/signalbox-dev/signalbox/shard/meta"
)

// Source gives the state of a backup bucket by bucket, like the source shard of a move. It is for
// one restore. Its methods may be called from several goroutines.
type Source struct {
	Contents
	tier     meta.Tier // that has the data
	epoch    uint64
	state    *meta.State
	machines map[uint64]*shard.Machine

	mu         sync.Mutex
	restored   []bool // by bucket
	unrestored uint32 // buckets that are not filled
}

// Load reads a backup with all the checks of [Verify], and keeps it in memory. One tier must have
// all data, because a cluster is restored to one instance. Now is the time of day: the older the
// backup, the farther ids continue above its own.
func Load(r io.Reader, now time.Time) (*Source, error) {
	v, err := load(r)
	if err != nil {
		return nil, err
	}
	s := &Source{Contents: v.out, epoch: meta.FirstEpoch, state: v.state, machines: v.machines}
	if len(s.DataTiers) > 1 {
		return nil, fmt.Errorf("the backup's cluster has data in the tiers %s; a cluster can be restored that has data in one tier",
			strings.Join(s.DataTiers, ", "))
	}
	if s.tier, _ = s.state.Tier(s.state.DataTier()); !s.tier.Bootstrapped {
		return nil, errors.New("the buckets of the backup's cluster were not assigned yet: there is nothing to restore")
	}
	s.unrestored = s.tier.Buckets
	s.restored = make([]bool, s.unrestored)
	// One epoch for all buckets, above all earlier ones: copies are told apart by it.
	for _, run := range s.tier.Runs {
		s.epoch = max(s.epoch, run.Epoch+1)
	}
	for _, m := range s.machines {
		_, total := m.Tier()
		for b := range total {
			epoch, _ := m.Bucket(b)
			s.epoch = max(s.epoch, epoch+1)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(s.machines)) {
		if err := s.freeze(id); err != nil {
			return nil, fmt.Errorf("shard %d of the backup: %w", id, err)
		}
		s.machines[id].SkipAhead(uint64(max(0, now.UnixMilli()-s.MadeMS)) / 1000)
	}
	return s, nil
}

// Buckets is the number of buckets of the tier with data. The new cluster must have as many.
func (s *Source) Buckets() uint32 { return s.tier.Buckets }

// Tier is the id of that tier. The tier of the new instance gets the same, since it is in the ids
// of sessions. Names are those of all tiers, in order of id.
func (s *Source) Tier() (id uint8, names []string) {
	for _, t := range s.state.Tiers() {
		names = append(names, t.Name)
	}
	return s.tier.ID, names
}

// Epoch is the bucket epoch of the given copies, above all in the backup.
func (s *Source) Epoch() uint64 { return s.epoch }

// MarkRestored records that buckets of the new cluster have all of the backup's data, and says
// whether all buckets do. It may be repeated.
func (s *Source) MarkRestored(first, count uint32) (all bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for b := first; b < first+count; b++ {
		if !s.restored[b] {
			s.restored[b] = true
			s.unrestored--
		}
	}
	return s.unrestored == 0
}

// ClusterName is the cluster's name.
func (s *Source) ClusterName() string { return s.state.ClusterName() }

// Map is the backup's map for [meta.Bootstrap].
func (s *Source) Map() ([]byte, error) {
	var b bytes.Buffer
	m := meta.Machine{State: *s.state}
	if _, err := m.BeginSnapshot().WriteTo(&b); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// maxProposals bounds how often a shard gets time to finish pending work; each time it handles tens
// of thousands of records.
const maxProposals = 1_000_000

// freeze leads the copy in memory a last time: it detaches all sessions, drops nodes that the map
// does not know or is dropping, and freezes the buckets.
func (s *Source) freeze(id uint64) error {
	m := s.machines[id]
	l, st := takeOver(m)
	if st != protocol.StatusOK {
		return st
	}
	for _, node := range m.Nodes().IDs() {
		if n, ok := s.state.Node(node); ok && n.Phase != meta.Dropping {
			continue
		}
		if st := l.propose(shard.Command{Kind: shard.CmdNodeDrop,
			Body: shard.AppendNodeDrop(nil, shard.NodeDropBody{Node: node})}); st != protocol.StatusOK {
			return st
		}
	}
	for _, run := range s.tier.Runs {
		if run.Shard != id || run.Count == 0 {
			continue
		}
		if st := l.proposeUntilDone(shard.CmdFreeze, shard.BucketsBody{Tier: s.tier.ID, Total: s.tier.Buckets, First: run.First,
			Count: run.Count, Epoch: s.epoch}); st != protocol.StatusOK {
			return st
		}
	}
	return nil
}

// Parts are the pieces of a run of buckets that lie in one shard of the backup each, in order.
func (s *Source) Parts(first, count uint32) (parts []shard.BucketsBody) {
	for _, run := range s.tier.Runs {
		from, to := max(first, run.First), min(first+count, run.First+run.Count)
		if from < to {
			parts = append(parts, shard.BucketsBody{Tier: s.tier.ID, Total: s.tier.Buckets, First: from, Count: to - from, Epoch: s.epoch})
		}
	}
	slices.SortFunc(parts, func(a, b shard.BucketsBody) int { return int(a.First) - int(b.First) })
	return parts
}

// Chunk is the chunk of a part at a cursor, nil at first, and the next cursor, nil with the last.
func (s *Source) Chunk(part shard.BucketsBody, cursor []byte) (chunk, next []byte, err error) {
	for _, run := range s.tier.Runs {
		if part.First >= run.First && part.First-run.First < run.Count {
			return s.machines[run.Shard].Buckets().Export(part.First, part.Count, s.epoch, cursor, 0)
		}
	}
	return nil, nil, errors.New("the backup has no such bucket")
}
