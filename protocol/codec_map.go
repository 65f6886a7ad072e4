package protocol

func (m *MapRequest) AppendBody(b []byte) []byte {
	return appendUint(appendArray(b, 1), m.Known)
}

func (m *MapRequest) DecodeBody(body []byte) error {
	c := openBody(body, "map")
	m.Known = c.uint("known")
	return c.end()
}

func (m *MapReply) AppendBody(b []byte) []byte {
	b = appendArray(b, 5)
	b = appendUint(b, m.Version)
	b = appendStr(b, m.Cluster)
	b = appendArray(b, len(m.Instances))
	for i := range m.Instances {
		b = m.Instances[i].append(b)
	}
	b = appendArray(b, len(m.Shards))
	for i := range m.Shards {
		b = m.Shards[i].append(b)
	}
	b = appendArray(b, len(m.Tiers))
	for i := range m.Tiers {
		b = m.Tiers[i].append(b)
	}
	return b
}

func (m *MapReply) DecodeBody(body []byte) error {
	c := openBody(body, "map reply")
	m.Version = c.uint("version")
	m.Cluster = c.str("cluster")
	m.Instances = list(&c, "instances", 3, (*MapInstance).read)
	m.Shards = list(&c, "shards", 4, (*MapShard).read)
	m.Tiers = list(&c, "tiers", 4, (*MapTier).read)
	return c.end()
}

func (m *MapInstance) append(b []byte) []byte {
	b = appendArray(b, 3)
	b = appendUint(b, m.ID)
	b = appendStr(b, m.Name)
	return appendStr(b, m.Address)
}

func (m *MapInstance) read(c *cursor) {
	m.ID = c.uint("instances.id")
	m.Name = c.str("instances.name")
	m.Address = c.str("instances.address")
}

func (m *MapShard) append(b []byte) []byte {
	b = appendArray(b, 4)
	b = appendUint(b, m.ID)
	b = appendUint(b, m.Master)
	b = appendUint(b, m.Term)
	b = appendArray(b, len(m.Replicas))
	for _, r := range m.Replicas {
		b = appendUint(b, r)
	}
	return b
}

func (m *MapShard) read(c *cursor) {
	m.ID = c.uint("shards.id")
	m.Master = c.uint("shards.master")
	m.Term = c.uint("shards.term")
	m.Replicas = c.uints("shards.replicas")
}

func (m *MapTier) append(b []byte) []byte {
	b = appendArray(b, 4)
	b = appendUint(b, uint64(m.ID))
	b = appendStr(b, m.Name)
	b = appendUint(b, uint64(m.Buckets))
	b = appendArray(b, len(m.Runs))
	for _, r := range m.Runs {
		b = appendArray(b, 2)
		b = appendUint(b, uint64(r.Count))
		b = appendUint(b, r.Shard)
	}
	return b
}

func (m *MapTier) read(c *cursor) {
	m.ID = c.uint8("tiers.id")
	m.Name = c.str("tiers.name")
	m.Buckets = c.uint32("tiers.buckets")
	m.Runs = list(c, "tiers.runs", 2, (*MapRun).read)
}

func (m *MapRun) read(c *cursor) {
	m.Count = c.uint32("tiers.runs.count")
	m.Shard = c.uint("tiers.runs.shard")
}

func (m *MapChanged) AppendBody(b []byte) []byte {
	b = appendUint(appendArray(b, 4), m.Version)
	b = appendUint(b, m.Shard)
	return appendUint(appendUint(b, m.Master), m.Term)
}

func (m *MapChanged) DecodeBody(body []byte) error {
	c := openBody(body, "map changed")
	m.Version = c.uint("version")
	m.Shard = c.uint("shard")
	m.Master = c.uint("master")
	m.Term = c.uint("term")
	return c.end()
}
