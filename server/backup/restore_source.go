package backup

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard"
	"github.com/signalbox-dev/signalbox/shard/meta"
)

// Source gives the state of a backup bucket by bucket, like the source shard of a move. It is for
// one restore. Parts and Chunk may be called from several goroutines, after Prepare.
type Source struct {
	Contents
	epoch    uint64
	state    *meta.State
	machines map[uint64]*shard.Machine
}

// Load reads a backup with all the checks of [Verify], and keeps it in memory. What it gives
// depends on the file alone, so that another process can continue a restore.
func Load(r io.Reader) (*Source, error) {
	v, err := load(r)
	if err != nil {
		return nil, err
	}
	s := &Source{Contents: v.out, epoch: meta.FirstEpoch, state: v.state, machines: v.machines}
	if !slices.ContainsFunc(s.Tiers(), func(t meta.Tier) bool { return t.Bootstrapped }) {
		return nil, errors.New("the buckets of the backup's cluster were not assigned yet: there is nothing to restore")
	}
	// One epoch for all buckets of all tiers, above all earlier ones: copies are told apart by it.
	for _, t := range s.Tiers() {
		for _, run := range t.Runs {
			s.epoch = max(s.epoch, run.Epoch+1)
		}
	}
	for _, m := range s.machines {
		_, total := m.Tier()
		for b := range total {
			epoch, _ := m.Bucket(b)
			s.epoch = max(s.epoch, epoch+1)
		}
	}
	return s, nil
}

// Tiers are those of the backup, in order of id. The new cluster's tiers with data have the same
// ids, which are in the ids of sessions, and as many buckets.
func (s *Source) Tiers() []meta.Tier { return s.state.Tiers() }

// Epoch is the bucket epoch of the given copies, above all in the backup.
func (s *Source) Epoch() uint64 { return s.epoch }

// Prepare makes buckets ready to be read, and moves ids on. wall is when the new cluster was made,
// in ms since 1970: the later that is, the farther ids continue above the backup's own. With
// endSessions no session of the backup goes on. It is called once, before Chunk.
func (s *Source) Prepare(wall uint64, endSessions bool) error {
	for _, id := range slices.Sorted(maps.Keys(s.machines)) {
		if err := s.freeze(id, endSessions); err != nil {
			return fmt.Errorf("shard %d of the backup: %w", id, err)
		}
		s.machines[id].BumpCounters(uint64(max(0, s.MadeMS)), wall)
	}
	return nil
}

// HighestToken returns the highest fencing token from which a shard continues; call Prepare before.
func (s *Source) HighestToken() (highest uint64) {
	for _, m := range s.machines { // the highest of all: the order does not matter
		highest = max(highest, m.HighestToken())
	}
	return highest
}

// ClientCluster is the id by which clients know the cluster.
func (s *Source) ClientCluster() string { return s.state.ClientCluster() }

// ClusterName is the cluster's name.
func (s *Source) ClusterName() string { return s.state.ClusterName() }

// Map is the backup's map for [meta.Bootstrap].
func (s *Source) Map() ([]byte, error) { return encodeMap(s.state) }

func encodeMap(s *meta.State) ([]byte, error) {
	var b bytes.Buffer
	m := meta.Machine{State: *s}
	_, err := m.BeginSnapshot().WriteTo(&b)
	return b.Bytes(), err
}

// maxProposals bounds how often a shard gets time to finish pending work; each time it handles tens
// of thousands of records.
const maxProposals = 1_000_000

// freeze leads the copy in memory a last time: it detaches or ends all sessions, drops nodes that
// the map does not know or is dropping, and freezes the buckets.
func (s *Source) freeze(id uint64, endSessions bool) error {
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
	if endSessions {
		if err := l.endSessions(); err != nil {
			return err
		}
	}
	for _, t := range s.Tiers() {
		for _, run := range t.Runs {
			if run.Shard != id || run.Count == 0 {
				continue
			}
			if st := l.proposeUntilDone(shard.CmdFreeze, s.body(&t, run.First, run.Count)); st != protocol.StatusOK {
				return st
			}
		}
	}
	return nil
}

// endSessions ends all sessions that are at home in the machine. Shards where they hold something
// learn it from their new home, as of every session that has ended.
func (p *proposer) endSessions() error {
	for _, node := range p.m.Nodes().IDs() {
		for page, more := (protocol.SessionListReply{}), true; more; more = len(page.Cursor) > 0 {
			list := protocol.SessionList{Node: node, Cursor: page.Cursor}
			page = protocol.SessionListReply{}
			if err := p.m.Sessions().List(&list, &page); err != nil {
				return err
			}
			for _, x := range page.Sessions {
				kill := protocol.SessionKill{Session: x.Session, Node: node,
					Reason: "the cluster was restored from a backup"}
				if st := p.propose(shard.Command{Kind: shard.CmdSessionKill,
					Body: protocol.AppendBody(nil, &kill)}); st != protocol.StatusOK {
					return st
				}
			}
		}
	}
	return nil
}

func (s *Source) body(t *meta.Tier, first, count uint32) shard.BucketsBody {
	return shard.BucketsBody{Tier: t.ID, Total: t.Buckets, First: first, Count: count, Epoch: s.epoch}
}

// Parts are the pieces of a run of buckets of a tier that lie in one shard of the backup each, in
// order.
func (s *Source) Parts(tier uint8, first, count uint32) (parts []shard.BucketsBody) {
	t, _ := s.state.Tier(tier)
	for _, run := range t.Runs { // in order of buckets
		from, to := max(first, run.First), min(first+count, run.First+run.Count)
		if from < to {
			parts = append(parts, s.body(&t, from, to-from))
		}
	}
	return parts
}

// Chunk is the chunk of a part at a cursor, nil at first, and the next cursor, nil with the last.
func (s *Source) Chunk(part shard.BucketsBody, cursor []byte) (chunk, next []byte, err error) {
	owner, _ := s.state.Route(part.Tier, part.First)
	m := s.machines[owner]
	if m == nil {
		return nil, nil, errors.New("the backup has no such bucket")
	}
	return m.Buckets().Export(part.First, part.Count, s.epoch, cursor, 0)
}
