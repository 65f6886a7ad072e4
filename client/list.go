package client

import (
	"context"
	"encoding/binary"
	"iter"

	"github.com/signalbox-dev/signalbox/client/internal/core"
	"github.com/signalbox-dev/signalbox/client/internal/driver"
	"github.com/signalbox-dev/signalbox/client/internal/handle"
	"github.com/signalbox-dev/signalbox/protocol"
)

// SemaphoreInfo is a semaphore in a list.
type SemaphoreInfo struct {
	Name       string
	Limit      uint64
	Used       uint64
	Ephemeral  bool
	Version    uint64
	DataLen    uint64 // bytes
	NumOwners  uint64
	NumWaiters uint64
	// Of the session the list was limited to.
	Token   uint64
	Count   uint64
	Waiting bool
}

// List lists the semaphores whose name begins with prefix, in order of name, over all shards;
// OfSession, After and MaxItems limit it. The sequence ends after its first error.
func (n *Node) List(ctx context.Context, prefix string, opts ...ReadOption) iter.Seq2[SemaphoreInfo, error] {
	o, err := readOptionsOf(opts, listOptions)
	name := func(s *SemaphoreInfo) string { return s.Name }
	read := func(shard uint64, cursor []byte) (page handle.ListPage[SemaphoreInfo], err error) {
		req := &protocol.List{
			Shard: shard, Node: n.h.ID, Prefix: []byte(prefix), Session: o.session, Cursor: cursor, Limit: uint32(o.most),
		}
		var reply protocol.ListReply
		r := n.c.d.Call(ctx, &core.Call{
			Kind: protocol.KindList, Msg: req, Reply: &reply, To: n.h.AtShard(shard),
			Read: n.h.Read(o.consistency, &req.Consistency, &req.MinIndex, &reply.Index),
		})
		if r.Err != nil {
			return page, driver.Err(r)
		}
		items := make([]SemaphoreInfo, len(reply.Semaphores))
		for i, w := range reply.Semaphores {
			items[i] = SemaphoreInfo{
				Name: string(w.Name), Limit: w.Limit, Used: w.Used, Ephemeral: w.Ephemeral,
				Version: w.Version, DataLen: w.DataLen,
				NumOwners: w.NumOwners, NumWaiters: w.NumWaiters, Token: w.OrderID,
				Count: w.Count, Waiting: w.Waiting,
			}
		}
		return handle.ListPage[SemaphoreInfo]{Items: items, Next: reply.Cursor, Runs: reply.Runs}, nil
	}
	return handle.ListShards(ctx, n.h, "list", prefix, o.limits(err), name, read)
}

// limits returns the limits of a list, by name or by session, or the error of the options.
func (o *readOptions) limits(err error) handle.ListLimits {
	first := []byte(o.after)
	if o.afterSession > 0 {
		first = binary.BigEndian.AppendUint64(nil, o.afterSession)
	}
	return handle.ListLimits{First: first, Most: o.most, Err: err}
}
