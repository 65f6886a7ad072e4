package shard

import "bytes"

// object finds an object. Errors: WRONG_SHARD; NOT_FOUND for the node or the object.
func (r reader) object(kind kindNumber, node uint64, name []byte) (*hostedObject, error) {
	b := r.m.activeObjectBucket(kind, node, name)
	if b == nil {
		return nil, wrongShard()
	}
	if _, err := r.node(node); err != nil {
		return nil, err
	}
	x := b.readObject(kind, node, name)
	if x == nil {
		return nil, hostedKinds[kind].missing
	}
	return x, nil
}

// objectPage is a request for a page of a node's objects.
type objectPage struct {
	node           uint64
	prefix, cursor []byte
	limit          uint32
}

// listObjects visits a page of a node's objects of one kind in the active buckets of this shard, in
// order of name. The cursor is the last name of the page before; next is set if there is another
// page. Errors: BAD_REQUEST, NOT_FOUND.
func (r reader) listObjects(kind kindNumber, req objectPage, next *[]byte, visit func(*hostedObject)) error {
	n, err := r.node(req.node)
	if err != nil {
		return err
	}
	l, err := newListing(req.prefix, req.cursor, req.limit)
	if err != nil {
		return err
	}
	n.objects[kind].Ascend(func(x *hostedObject) bool {
		return bytes.Compare(x.name, l.from) < 0
	}, func(x *hostedObject) bool {
		take, more := l.look(x.name, x.bucket, 48, next)
		if take {
			visit(x)
		}
		return more
	})
	return nil
}

// objectsFrom yields the objects of one kind that are active here, in order of node and name, from
// the one named on.
func (r reader) objectsFrom(kind kindNumber, first uint64, name []byte, yield func(*hostedObject) bool) {
	more := true
	r.m.nodeIndex.Ascend(func(n *node) bool { return n.id < first }, func(n *node) bool {
		if n.dropped {
			return true
		}
		before := func(x *hostedObject) bool { return n.id == first && bytes.Compare(x.name, name) < 0 }
		n.objects[kind].Ascend(before, func(x *hostedObject) bool {
			more = x.bucket.state != bucketActive || yield(x)
			return more
		})
		return more
	})
}
