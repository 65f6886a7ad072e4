package core

import (
	"maps"
	"slices"
	"strings"

	"github.com/signalbox-dev/signalbox/protocol"
)

// streamSet finds the streams of a connection that an event concerns.
type streamSet struct {
	byID     map[uint64]*shardStream
	exact    map[streamKey][]*shardStream // of one name
	prefixes []*shardStream
	only     *shardStream // of one name, if there are no others: a client often watches one
}

// streamKey identifies the subject of a stream of one name.
type streamKey struct {
	shard, node uint64
	name        string
}

func (p *shardStream) key() streamKey { return streamKey{p.home, p.msg.Node, string(p.msg.Name)} }

// len is how many streams there are.
func (x *streamSet) len() int { return len(x.byID) }

func (x *streamSet) add(p *shardStream) {
	put(&x.byID, p.stream, p)
	x.only = nil
	switch {
	case p.kind != protocol.KindWatch:
	case p.msg.Prefix:
		x.prefixes = append(x.prefixes, p)
	default:
		k := p.key()
		put(&x.exact, k, append(x.exact[k], p))
		if len(x.byID) == 1 {
			x.only = p
		}
	}
}

func (x *streamSet) remove(p *shardStream) {
	if x.byID[p.stream] != p {
		return
	}
	if x.only == p {
		x.only = nil
	}
	delete(x.byID, p.stream)
	not := func(o *shardStream) bool { return o == p }
	switch {
	case p.kind != protocol.KindWatch:
	case p.msg.Prefix:
		x.prefixes = slices.DeleteFunc(x.prefixes, not)
	default:
		k := p.key()
		if same := slices.DeleteFunc(x.exact[k], not); len(same) > 0 {
			x.exact[k] = same
		} else {
			delete(x.exact, k)
		}
	}
}

// matching are the streams of semaphores that a change of one concerns.
func (x *streamSet) matching(list []*shardStream, shard, node uint64, name []byte) []*shardStream {
	if p := x.only; p != nil {
		if p.home == shard && p.msg.Node == node && string(p.msg.Name) == string(name) {
			list = append(list, p)
		}
		return list
	}
	list = append(list, x.exact[streamKey{shard, node, string(name)}]...)
	for _, p := range x.prefixes {
		if p.home == shard && p.msg.Node == node && strings.HasPrefix(string(name), string(p.msg.Name)) {
			list = append(list, p)
		}
	}
	return list
}

// all are the streams in the order in which they were asked for.
func (x *streamSet) all() (list []*shardStream) {
	for _, id := range slices.Sorted(maps.Keys(x.byID)) {
		list = append(list, x.byID[id])
	}
	return list
}
