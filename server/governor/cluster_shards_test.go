package governor

import (
	"context"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard"
)

// plainData is what a data shard knows.
type plainData struct {
	copies map[uint32]*bucketCopy
	nodes  map[uint64]uint64 // revision
}

// bucketCopy is one shard's copy of a bucket, gone or not.
type bucketCopy struct {
	state  byte // 0 absent, a active, f frozen, i imported in part, c imported whole
	epoch  uint64
	number uint64
	chunks byte
}

// clusterShards and clusterGroups are the other interfaces, whose methods have names in common.
type clusterShards struct{ *cluster }

func (s clusterShards) Propose(_ context.Context, x uint64, cmd shard.Command) error {
	cmd.Body = slices.Clone(cmd.Body)
	return s.deliver(func() error {
		if !s.ensureLeader(x) {
			return errNoLeader
		}
		s.groups[x].log++
		return s.do(x, cmd)
	})
}

func (s clusterShards) Registers(_ context.Context, x, _ uint64) (Registers, error) {
	if !s.ensureLeader(x) {
		return Registers{}, errNoLeader
	}
	return Registers{Epoch: s.groups[x].term}, nil
}

// CopyBuckets imports one chunk in each call. There is a chunk for each half of the buckets.
func (s clusterShards) CopyBuckets(ctx context.Context, source, target uint64, run shard.BucketsBody) (done bool, err error) {
	if !s.ensureLeader(source) || !s.ensureLeader(target) {
		return false, errNoLeader
	}
	if s.hangs != nil && s.hangs(source) {
		return false, errLost
	}
	part := byte(0)
	if y := s.data[target].copies[run.First]; y != nil && y.epoch == run.Epoch {
		if y.state == 'c' || y.state == 'a' {
			return true, nil
		}
		part = y.chunks
	}
	chunk := []byte{part}
	for b := run.First; b < run.First+run.Count; b++ {
		y := s.data[source].copies[b]
		if y == nil || y.state != 'f' || y.epoch != run.Epoch {
			return false, protocol.Errorf(protocol.StatusPreconditionFailed, "bucket %d is not frozen under %d", b, run.Epoch)
		}
		chunk = binary.AppendUvarint(chunk, y.number)
	}
	body := shard.AppendImport(nil, shard.ImportBody{BucketsBody: run, Chunk: chunk})
	err = s.Propose(ctx, target, shard.Command{Kind: shard.CmdImport, Body: body})
	return part == 1 && err == nil, err
}

// do is a data shard's apply.
func (c *cluster) do(x uint64, cmd shard.Command) error {
	body := cmd.Body
	number := func() uint64 {
		v, n := binary.Uvarint(body)
		body = body[n:]
		return v
	}
	d := c.data[x]
	switch cmd.Kind {
	case shard.CmdNodePut:
		node, revision := number(), number()
		d.nodes[node] = max(d.nodes[node], revision)
		return nil
	case shard.CmdNodeDrop:
		delete(d.nodes, number())
		return nil
	}
	body = body[1:]
	_, first, count, epoch := number(), uint32(number()), uint32(number()), number()
	part := byte(0)
	if cmd.Kind == shard.CmdImport {
		part, body = body[0], body[1:]
	}
	for b := first; b < first+count; b++ {
		y := d.copies[b]
		if y == nil {
			y = &bucketCopy{}
			d.copies[b] = y
		}
		imported := uint64(0)
		if cmd.Kind == shard.CmdImport {
			imported = number()
		}
		if err := y.step(cmd.Kind, epoch, part, imported); err != nil {
			return fmt.Errorf("shard %d, bucket %d at %c epoch %d: %w", x, b, y.state|'_', y.epoch, err)
		}
	}
	c.checkBuckets()
	return nil
}

// step is one step of a move as a data shard takes it.
func (b *bucketCopy) step(kind shard.CommandKind, epoch uint64, part byte, number uint64) error {
	refused := protocol.Errorf(protocol.StatusPreconditionFailed, "step %d under epoch %d is refused", kind, epoch)
	switch kind {
	case shard.CmdBuckets:
		if b.state == 0 && b.epoch == 0 {
			b.state, b.epoch = 'a', max(1, epoch)
		}
	case shard.CmdFreeze:
		switch {
		case b.state == 'a' && b.epoch < epoch:
			b.state, b.epoch = 'f', epoch
		case b.state != 'f' || b.epoch != epoch:
			return refused
		}
	case shard.CmdImport:
		switch {
		case b.epoch == epoch && (b.state == 'c' || b.state == 'a'):
		case b.epoch < epoch && (b.state == 0 || b.state == 'i' || b.state == 'c'):
			*b = bucketCopy{state: 'i', epoch: epoch}
			fallthrough
		case b.epoch == epoch && b.state == 'i':
			if part > b.chunks {
				return protocol.Errorf(protocol.StatusAborted, "chunk %d comes too early", part)
			}
			if b.chunks = max(b.chunks, part+1); b.chunks == 2 {
				b.state = 'c'
			}
			b.number = number
		default:
			return refused
		}
	case shard.CmdActivate:
		switch {
		case b.epoch == epoch && b.state == 'a':
		case b.epoch == epoch && b.state == 'c', b.epoch < epoch && (b.state == 'f' || b.state == 'a'):
			b.state, b.epoch = 'a', epoch
		default:
			return refused
		}
	case shard.CmdDropBuckets:
		switch {
		case b.epoch > epoch || (b.epoch == epoch && (b.state == 'a' || b.state == 'c')):
			return refused
		case b.state == 'a':
			return refused
		default:
			*b = bucketCopy{epoch: epoch}
		}
	}
	return nil
}

// checkBuckets: each bucket is active in one shard at most, with all that was written.
func (c *cluster) checkBuckets() {
	active := map[bucketKey]uint64{}
	for _, x := range slices.Sorted(maps.Keys(c.data)) {
		s, ok := c.machine.Shard(x)
		if !ok {
			continue
		}
		for bucket, y := range c.data[x].copies {
			if y.state != 'a' {
				continue
			}
			b := bucketKey{s.Tier, bucket}
			if other, twice := active[b]; twice {
				c.violation(fmt.Sprintf("bucket %d is active in shards %d and %d", b, other, x))
			}
			active[b] = x
			if y.number != c.written[b] {
				c.violation(fmt.Sprintf("bucket %d in shard %d has %d, but %d was written", b, x, y.number, c.written[b]))
			}
		}
	}
}

// write is a client's write to a bucket, by the map; a retry if it is refused.
func (c *cluster) write(tier uint8, b uint32) {
	x, _ := c.machine.Route(tier, b)
	if x == 0 || !c.ensureLeader(x) {
		return
	}
	if y := c.data[x].copies[b]; y != nil && y.state == 'a' {
		y.number++
		c.written[bucketKey{tier, b}]++
	}
}
