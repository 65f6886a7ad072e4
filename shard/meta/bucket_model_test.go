package meta

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/signalbox-dev/signalbox/protocol"
)

// bucketModel is the ownership of one tier's buckets written as plainly as the rules are: arrays,
// and loops over them.
type bucketModel struct {
	owner []uint64
	epoch []uint64
	moves []Move
}

func (m *bucketModel) moveOf(b uint32) *Move {
	for i := range m.moves {
		if x := &m.moves[i]; b >= x.First && b < x.First+x.Count {
			return x
		}
	}
	return nil
}

// mayBegin reports whether a move is legal, and that it is under way already.
func (m *bucketModel) mayBegin(s *State, c *MoveBegin) (legal, again bool) {
	if c.Count == 0 || int(c.First+c.Count) > len(m.owner) {
		return false, false
	}
	if x := m.moveOf(c.First); x != nil && x.First == c.First && x.Count == c.Count &&
		x.To == c.To && x.Phase == Moving && (c.From == 0 || c.From == x.From) {
		return true, true
	}
	to, ok := s.Shard(c.To)
	set, _ := s.Replicaset(to.Replicaset)
	from, _ := s.Shard(m.owner[c.First])
	if !ok || c.To == MetaShardID || to.Tier != c.Tier || !to.Ready || set.Phase >= ToBeExpelled ||
		!from.Ready || (c.From != 0 && c.From != from.ID) {
		return false, false
	}
	for b := c.First; b < c.First+c.Count; b++ {
		if m.owner[b] == 0 || m.owner[b] != from.ID || m.owner[b] == c.To || m.moveOf(b) != nil {
			return false, false
		}
	}
	return true, false
}

func (m *bucketModel) begin(c *MoveBegin) uint64 {
	epoch := slices.Max(m.epoch[c.First:c.First+c.Count]) + 1
	m.moves = append(m.moves, Move{c.Tier, c.First, c.Count, m.owner[c.First], c.To, epoch, Moving})
	return epoch
}

// decide expects the status of a commit or an abort.
func (m *bucketModel) decide(ref MoveRef, phase MovePhase) protocol.Status {
	x := m.moveOf(ref.First)
	switch {
	case x == nil || x.First != ref.First || x.Epoch != ref.Epoch:
		return protocol.StatusNotFound
	case x.Phase == phase:
		return protocol.StatusOK
	case x.Phase != Moving:
		return protocol.StatusPreconditionFailed
	}
	x.Phase = phase
	for b := x.First; b < x.First+x.Count; b++ {
		if m.epoch[b] = x.Epoch + 1; phase == Committed {
			m.owner[b], m.epoch[b] = x.To, x.Epoch
		}
	}
	return protocol.StatusOK
}

func (m *bucketModel) end(ref MoveRef) protocol.Status {
	for i, x := range m.moves {
		if x.Ref() == ref {
			if x.Phase == Moving {
				return protocol.StatusPreconditionFailed
			}
			m.moves = slices.Delete(m.moves, i, i+1)
			break
		}
	}
	return protocol.StatusOK
}

// routing is what clients route by, written out.
func routing(s *State) string {
	var out bytes.Buffer
	for _, i := range s.Instances() {
		if !i.Expelled() {
			fmt.Fprintf(&out, "%d %s %s %s\n", i.ID, i.Name, i.Address, i.RaftAddress)
		}
	}
	for _, x := range s.Shards() {
		fmt.Fprintf(&out, "%d %d", x.ID, x.Master)
		for _, r := range x.Replicas {
			if r.Role != RoleNone {
				fmt.Fprintf(&out, " %d", r.Instance)
			}
		}
		out.WriteByte('\n')
	}
	for _, t := range s.Tiers() {
		fmt.Fprintf(&out, "%d %v\n", t.ID, t.Runs)
	}
	return out.String()
}
