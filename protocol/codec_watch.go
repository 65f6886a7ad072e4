package protocol

func (m *Watch) AppendBody(b []byte) []byte {
	b = appendArray(b, 4)
	b = appendUint(b, m.Shard)
	b = appendUint(b, m.Node)
	b = appendBin(b, m.Name)
	return appendBool(b, m.Prefix)
}

func (m *Watch) DecodeBody(body []byte) error {
	c := openBody(body, "watch")
	m.Shard = c.uint("shard")
	m.Node = c.uint("node")
	m.Name = c.bytes("name")
	m.Prefix = c.bool("prefix")
	return c.end()
}

func (m *Unwatch) AppendBody(b []byte) []byte {
	return appendUint(appendArray(b, 1), m.WatchID)
}

func (m *Unwatch) DecodeBody(body []byte) error {
	c := openBody(body, "unwatch")
	m.WatchID = c.uint("watch id")
	return c.end()
}

func (m *Snapshot) AppendBody(b []byte) []byte {
	b = appendArray(b, 5)
	b = appendUint(b, m.Index)
	b = appendBool(b, m.First)
	b = appendBool(b, m.Last)
	b = appendArray(b, len(m.Semaphores))
	for i := range m.Semaphores {
		b = m.Semaphores[i].append(b)
	}
	b = appendArray(b, len(m.Runs))
	for _, r := range m.Runs {
		b = appendArray(b, 2)
		b = appendUint(b, uint64(r.Count))
		b = appendUint(b, r.Epoch)
	}
	return b
}

func (m *Snapshot) DecodeBody(body []byte) error {
	c := openBody(body, "snapshot")
	m.Index = c.uint("index")
	m.First = c.bool("first")
	m.Last = c.bool("last")
	m.Semaphores = list(&c, "semaphores", 6, (*SnapshotItem).read)
	m.Runs = list(&c, "runs", 2, (*SnapshotRun).read)
	return c.end()
}

func (m *SnapshotRun) read(c *cursor) {
	m.Count = c.uint32("runs.count")
	m.Epoch = c.uint("runs.epoch")
}

func (m *SnapshotItem) append(b []byte) []byte {
	b = appendArray(b, 6)
	b = appendBin(b, m.Name)
	b = appendUint(b, m.Limit)
	b = appendBool(b, m.Ephemeral)
	b = appendUint(b, m.Version)
	b = appendBin(b, m.Data)
	b = appendArray(b, len(m.Owners))
	for i := range m.Owners {
		b = m.Owners[i].append(b)
	}
	return b
}

func (m *SnapshotItem) read(c *cursor) {
	m.Name = c.bytes("semaphores.name")
	m.Limit = c.uint("semaphores.limit")
	m.Ephemeral = c.bool("semaphores.ephemeral")
	m.Version = c.uint("semaphores.version")
	m.Data = c.bytes("semaphores.data")
	m.Owners = list(c, "semaphores.owners", 6, (*Owner).read)
}

func (m *Delta) AppendBody(b []byte) []byte {
	b = appendArray(b, 4)
	b = appendUint(b, m.Node)
	b = appendBin(b, m.Name)
	b = appendUint(b, m.Index)
	b = appendArray(b, len(m.Changes))
	for i := range m.Changes {
		b = m.Changes[i].append(b)
	}
	return b
}

func (m *Delta) DecodeBody(body []byte) error {
	c := openBody(body, "delta")
	m.Node = c.uint("node")
	m.Name = c.bytes("name")
	m.Index = c.uint("index")
	m.Changes = list(&c, "changes", 6, (*SemaphoreChange).read)
	return c.end()
}

func (m *SemaphoreChange) append(b []byte) []byte {
	b = appendArray(b, 6)
	b = appendUint(b, uint64(m.Kind))
	b = appendUint(b, m.Limit)
	b = appendBool(b, m.Ephemeral)
	b = appendUint(b, m.Version)
	b = appendBin(b, m.Data)
	return m.Owner.append(b)
}

func (m *SemaphoreChange) read(c *cursor) {
	m.Kind = SemaphoreChangeKind(c.uint8("changes.kind"))
	m.Limit = c.uint("changes.limit")
	m.Ephemeral = c.bool("changes.ephemeral")
	m.Version = c.uint("changes.version")
	m.Data = c.bytes("changes.data")
	outer := c.enter("changes.owner")
	m.Owner.read(c)
	c.leave(outer)
}

func (m *StreamCut) AppendBody(b []byte) []byte {
	b = appendArray(b, 2)
	b = appendUint(b, uint64(m.Status))
	return appendStr(b, m.Message)
}

func (m *StreamCut) DecodeBody(body []byte) error {
	c := openBody(body, "stream cut")
	m.Status = Status(c.uint8("status"))
	m.Message = c.str("message")
	return c.end()
}
