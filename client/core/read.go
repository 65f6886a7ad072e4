package core

// memory is what the client knows of a shard's log, whatever the map says.
type shardMemory struct {
	index uint64 // the highest one that it has read, or that a subscription has taken in
}

// memory is what is known of a shard.
func (x *routes) memory(shard uint64) *shardMemory {
	m := x.memories[shard]
	if m == nil {
		m = &shardMemory{}
		x.memories[shard] = m
	}
	return m
}

// read notes an index of the shard's log that the client has seen: RELAXED reads that follow do not
// go back behind it.
func (m *shardMemory) read(index uint64) { m.index = max(m.index, index) }
