package backup

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/signalbox-dev/signalbox/shard"
	"github.com/signalbox-dev/signalbox/shard/meta"
)

// Shard is a shard in a backup.
type Shard struct {
	Section
	Digest     uint64 // of the machine that was made from it
	Nodes      int    // of the meta shard
	Tier       uint8  // id, of a data shard
	Sessions   int
	Semaphores int
}

// Contents of a backup that was read whole.
type Contents struct {
	Head
	Shards    []Shard  // the meta shard first
	Bytes     uint64   // of all snapshots
	DataTiers []string // names
}

// Sizes are the numbers of sessions and semaphores in all shards.
func (c *Contents) Sizes() (sessions, semaphores int) {
	for _, s := range c.Shards {
		sessions += s.Sessions
		semaphores += s.Semaphores
	}
	return sessions, semaphores
}

// TierSizes are the numbers of sessions and semaphores in the shards of a tier.
func (c *Contents) TierSizes(tier uint8) (sessions, semaphores int) {
	for _, s := range c.Shards {
		if s.Shard != 0 && s.Tier == tier {
			sessions += s.Sessions
			semaphores += s.Semaphores
		}
	}
	return sessions, semaphores
}

// Digest is that of all shards and of the backup's time. It tells backups apart: if nothing changed
// between two, what they are restored to differs by their age, see [Source.Advance]. It is never 0.
func (c *Contents) Digest() uint64 {
	digest := uint64(c.MadeMS)
	for _, s := range c.Shards {
		digest = digest*1_099_511_628_211 + s.Digest
	}
	return cmp.Or(digest, 1)
}

// Verify reads a whole backup. It checks every checksum, restores every shard, and compares the
// shard's digest with the one in the snapshot. The shards must be those of the map, and each bucket
// must be active only in the shard that the map names. It needs as much memory as all shards do.
func Verify(r io.Reader) (*Contents, error) {
	v, err := load(r)
	if err != nil {
		return nil, err
	}
	return &v.out, nil
}

func load(r io.Reader) (*verifier, error) {
	v := &verifier{in: reader{bufio.NewReaderSize(r, 1<<20)}, machines: make(map[uint64]*shard.Machine)}
	if err := v.in.magic(); err != nil {
		return nil, err
	}
	if err := v.in.document(blockHead, &v.out.Head); err != nil {
		return nil, err
	}
	for {
		kind, b, err := v.in.block()
		if err != nil {
			return nil, err
		}
		switch kind {
		case blockSection:
			var s Section
			if err := parse(b, &s); err != nil {
				return nil, err
			}
			if err := v.readSection(s); err != nil {
				return nil, err
			}
			continue
		case blockEnd:
			var e end
			if err := parse(b, &e); err != nil {
				return nil, err
			}
			if e.Sections != len(v.out.Shards) || e.Bytes != v.out.Bytes {
				return nil, fmt.Errorf("the backup is damaged: it has %d shards and %d bytes, and says %d and %d",
					len(v.out.Shards), v.out.Bytes, e.Sections, e.Bytes)
			}
			if n, _ := v.in.r.Read(make([]byte, 1)); n > 0 {
				return nil, errors.New("the backup is damaged: something follows its end")
			}
			return v, v.checkComplete()
		}
		return nil, fmt.Errorf("the backup is damaged: a block of kind %q between shards", kind)
	}
}

type verifier struct {
	in       reader
	out      Contents
	state    *meta.State
	machines map[uint64]*shard.Machine
}

func (v *verifier) readSection(s Section) error {
	in := &sectionReader{in: &v.in, left: s.Size}
	x := Shard{Section: s}
	if s.Shard == 0 {
		if v.state != nil {
			return errors.New("the backup is damaged: it has the meta shard twice")
		}
		m, err := meta.Restore(in)
		if err != nil {
			return fmt.Errorf("the meta shard: %w", err)
		}
		v.state = &m.State
		x.Digest, x.Nodes = m.Digest(), m.NumNodes()
		if got := m.AppliedIndex(); got != s.Index {
			return fmt.Errorf("the meta shard's snapshot is of entry %d, and the backup says %d", got, s.Index)
		}
	} else {
		if v.machines[s.Shard] != nil {
			return fmt.Errorf("the backup is damaged: it has shard %d twice", s.Shard)
		}
		m, err := shard.Restore(in)
		if err != nil {
			return fmt.Errorf("shard %d: %w", s.Shard, err)
		}
		v.machines[s.Shard] = m
		size := m.Metrics().Sizes()
		x.Digest, x.Sessions, x.Semaphores = m.Digest(), size.Sessions, size.Semaphores
		if got := m.AppliedIndex(); got != s.Index {
			return fmt.Errorf("shard %d's snapshot is of entry %d, and the backup says %d", s.Shard, got, s.Index)
		}
	}
	if in.left > 0 || len(in.rest) > 0 {
		return fmt.Errorf("shard %d: something follows its snapshot", s.Shard)
	}
	v.out.Shards = append(v.out.Shards, x)
	v.out.Bytes += s.Size
	return nil
}

func (v *verifier) checkComplete() error {
	if v.state == nil {
		return errors.New("the backup has no meta shard")
	}
	if v.state.Cluster() != v.out.Cluster {
		return fmt.Errorf("the backup is of cluster %s, and its meta shard of %s", v.out.Cluster, v.state.Cluster())
	}
	shards := v.state.Shards()
	if len(shards) != len(v.machines) || v.out.Head.Shards != len(shards) {
		return fmt.Errorf("the cluster has %d shards, and the backup has %d and speaks of %d",
			len(shards), len(v.machines), v.out.Head.Shards)
	}
	for _, x := range shards {
		if v.machines[x.ID] == nil {
			return fmt.Errorf("shard %d of the cluster is missing from the backup", x.ID)
		}
	}
	if b, err := encodeMap(v.state); err != nil {
		return err
	} else if len(b) > meta.MaxRestored {
		return fmt.Errorf("the cluster's map has %d MiB, and one of more than %d MiB cannot be restored; "+
			"drop coordination nodes, and make another backup", len(b)>>20, meta.MaxRestored>>20)
	}
	if n := len(v.state.Moves()); n > 0 {
		return fmt.Errorf("%d moves of buckets were under way when the backup was made; make another one", n)
	}
	for i := range v.out.Shards {
		x, _ := v.state.Shard(v.out.Shards[i].Shard)
		v.out.Shards[i].Tier = x.Tier
	}
	for _, t := range v.state.Tiers() {
		if t.ToBeRestored() {
			return fmt.Errorf("tier %s of the cluster is still to be restored from the backup with digest %016x; "+
				"keep that backup, restore the tier, and then make another backup", t.Name, t.Restore.Backup)
		}
		if t.Buckets > 0 {
			v.out.DataTiers = append(v.out.DataTiers, t.Name)
		}
		for _, run := range t.Runs {
			for b := run.First; b < run.First+run.Count; b++ {
				if err := v.checkBucket(shards, &t, b, run.Shard); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func (v *verifier) checkBucket(shards []meta.Shard, t *meta.Tier, b uint32, owner uint64) error {
	for _, x := range shards {
		m := v.machines[x.ID]
		if tier, total := m.Tier(); x.Tier != t.ID || total > 0 && tier != t.ID {
			continue
		}
		if _, active := m.Bucket(b); active != (x.ID == owner) {
			return fmt.Errorf("bucket %d of tier %s belongs to shard %d, and shard %d says otherwise: buckets moved while the backup was made; make another one", b, t.Name, owner, x.ID)
		}
	}
	if !slices.ContainsFunc(shards, func(x meta.Shard) bool { return x.ID == owner }) {
		return fmt.Errorf("bucket %d of tier %s belongs to shard %d, which there is not", b, t.Name, owner)
	}
	return nil
}

type sectionReader struct {
	in   *reader
	left uint64 // in blocks to come
	rest []byte
}

func (s *sectionReader) Read(p []byte) (int, error) {
	for len(s.rest) == 0 {
		if s.left == 0 {
			return 0, io.EOF
		}
		kind, b, err := s.in.block()
		switch {
		case err != nil:
			return 0, err
		case kind != blockBytes || uint64(len(b)) > s.left:
			return 0, errors.New("the backup is damaged: a shard has fewer bytes, or more, than it says")
		}
		s.rest, s.left = b, s.left-uint64(len(b))
	}
	n := copy(p, s.rest)
	s.rest = s.rest[n:]
	return n, nil
}
