package shard

import "github.com/signalbox-dev/signalbox/protocol"

// reader is a machine for those who read it. The types that embed it read one subject each:
// [Semaphores], [Sessions], [Processes], [Tracks], [RateLimits], [Nodes], [Buckets], [Load], [Metrics]. They are
// pointers, so that making one costs nothing. Reads change nothing in the machine, not even its
// buffers: they may run beside each other, and exclude Apply.
type reader struct{ m *Machine }

// bucket is the bucket of a name. Errors: WRONG_SHARD; NOT_FOUND for the node.
func (r reader) bucket(node uint64, name []byte) (*bucket, error) {
	b := r.m.activeBucket(node, name)
	if b == nil {
		return nil, wrongShard()
	}
	_, err := r.node(node)
	return b, err
}

func wrongShard() error {
	return &protocol.Error{Status: protocol.StatusWrongShard, Message: textWrongShard}
}

// node finds a node. Errors: NOT_FOUND.
func (r reader) node(id uint64) (*node, error) {
	if n := r.m.nodes[id]; n != nil {
		return n, nil
	}
	if r.m.isDropped(id) {
		return nil, errNodeDropped
	}
	return nil, errNoNode
}
