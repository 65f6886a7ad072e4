package protocol

func (m *Describe) AppendBody(b []byte) []byte {
	b = appendArray(b, 9)
	b = appendUint(b, m.Session)
	b = appendUint(b, m.Node)
	b = appendBin(b, m.Name)
	b = appendUint(b, uint64(m.Flags))
	b = appendUint(b, uint64(m.Consistency))
	b = appendUint(b, m.MinIndex)
	b = appendBin(b, m.Cursor)
	b = appendUint(b, uint64(m.Limit))
	return appendUint(b, m.WatchID)
}

func (m *Describe) DecodeBody(body []byte) error {
	c := openBody(body, "describe")
	m.Session = c.uint("session")
	m.Node = c.uint("node")
	m.Name = c.bytes("name")
	m.Flags = c.uint8("flags")
	m.Consistency = Consistency(c.uint8("consistency"))
	m.MinIndex = c.uint("min index")
	m.Cursor = c.bytes("cursor")
	m.Limit = c.uint32("limit")
	m.WatchID = c.uint("watch id")
	return c.end()
}

func (m *DescribeReply) AppendBody(b []byte) []byte {
	b = appendArray(b, 14)
	b = appendUint(b, m.Index)
	b = appendUint(b, m.Revision)
	b = appendBin(b, m.Name)
	b = appendBin(b, m.Data)
	b = appendUint(b, m.Version)
	b = appendUint(b, m.Used)
	b = appendUint(b, m.Limit)
	b = appendBool(b, m.Ephemeral)
	b = appendUint(b, m.CreatedAt)
	b = appendUint(b, m.NumOwners)
	b = appendUint(b, m.NumWaiters)
	b = appendArray(b, len(m.Owners))
	for i := range m.Owners {
		b = m.Owners[i].append(b)
	}
	b = appendArray(b, len(m.Waiters))
	for i := range m.Waiters {
		b = m.Waiters[i].append(b)
	}
	return appendBin(b, m.Cursor)
}

func (m *DescribeReply) DecodeBody(body []byte) error {
	c := openBody(body, "describe reply")
	m.Index = c.uint("index")
	m.Revision = c.uint("revision")
	m.Name = c.bytes("name")
	m.Data = c.bytes("data")
	m.Version = c.uint("version")
	m.Used = c.uint("used")
	m.Limit = c.uint("limit")
	m.Ephemeral = c.bool("ephemeral")
	m.CreatedAt = c.uint("created at")
	m.NumOwners = c.uint("num owners")
	m.NumWaiters = c.uint("num waiters")
	m.Owners = list(&c, "owners", 6, (*Owner).read)
	m.Waiters = list(&c, "waiters", 7, (*Waiter).read)
	m.Cursor = c.bytes("cursor")
	return c.end()
}

func (o *Owner) append(b []byte) []byte {
	b = appendArray(b, 6)
	b = appendUint(b, o.OrderID)
	b = appendUint(b, o.Session)
	b = appendUint(b, o.Count)
	b = appendBin(b, o.Data)
	b = appendStr(b, o.Description)
	return appendUint(b, o.Since)
}

func (o *Owner) read(c *cursor) {
	o.OrderID = c.uint("owner.order id")
	o.Session = c.uint("owner.session")
	o.Count = c.uint("owner.count")
	o.Data = c.bytes("owner.data")
	o.Description = c.str("owner.description")
	o.Since = c.uint("owner.since")
}

func (w *Waiter) append(b []byte) []byte {
	b = appendArray(b, 7)
	b = appendUint(b, w.OrderID)
	b = appendUint(b, w.Session)
	b = appendUint(b, w.Count)
	b = appendBin(b, w.Data)
	b = appendStr(b, w.Description)
	b = appendUint(b, w.Since)
	return appendUint(b, w.Timeout)
}

func (w *Waiter) read(c *cursor) {
	w.OrderID = c.uint("waiter.order id")
	w.Session = c.uint("waiter.session")
	w.Count = c.uint("waiter.count")
	w.Data = c.bytes("waiter.data")
	w.Description = c.str("waiter.description")
	w.Since = c.uint("waiter.since")
	w.Timeout = c.uint("waiter.timeout")
}

func (m *WatchFired) AppendBody(b []byte) []byte {
	b = appendArray(b, 4)
	b = appendUint(b, m.Session)
	b = appendUint(b, m.WatchID)
	b = appendBool(b, m.DataChanged)
	return appendBool(b, m.OwnersChanged)
}

func (m *WatchFired) DecodeBody(body []byte) error {
	c := openBody(body, "watch fired")
	m.Session = c.uint("session")
	m.WatchID = c.uint("watch id")
	m.DataChanged = c.bool("data changed")
	m.OwnersChanged = c.bool("owners changed")
	return c.end()
}

func (m *List) AppendBody(b []byte) []byte {
	b = appendArray(b, 8)
	b = appendUint(b, m.Shard)
	b = appendUint(b, m.Node)
	b = appendBin(b, m.Prefix)
	b = appendUint(b, m.Session)
	b = appendBin(b, m.Cursor)
	b = appendUint(b, uint64(m.Limit))
	b = appendUint(b, uint64(m.Consistency))
	return appendUint(b, m.MinIndex)
}

func (m *List) DecodeBody(body []byte) error {
	c := openBody(body, "list")
	m.Shard = c.uint("shard")
	m.Node = c.uint("node")
	m.Prefix = c.bytes("prefix")
	m.Session = c.uint("session")
	m.Cursor = c.bytes("cursor")
	m.Limit = c.uint32("limit")
	m.Consistency = Consistency(c.uint8("consistency"))
	m.MinIndex = c.uint("min index")
	return c.end()
}

func (m *ListReply) AppendBody(b []byte) []byte {
	b = appendArray(b, 3)
	b = appendUint(b, m.Index)
	b = appendArray(b, len(m.Semaphores))
	for i := range m.Semaphores {
		b = m.Semaphores[i].append(b)
	}
	return appendBin(b, m.Cursor)
}

func (m *ListReply) DecodeBody(body []byte) error {
	c := openBody(body, "list reply")
	m.Index = c.uint("index")
	m.Semaphores = list(&c, "semaphores", 11, (*ListItem).read)
	m.Cursor = c.bytes("cursor")
	return c.end()
}

func (m *ListItem) append(b []byte) []byte {
	b = appendArray(b, 11)
	b = appendBin(b, m.Name)
	b = appendUint(b, m.Limit)
	b = appendUint(b, m.Used)
	b = appendBool(b, m.Ephemeral)
	b = appendUint(b, m.Version)
	b = appendUint(b, m.DataLen)
	b = appendUint(b, m.NumOwners)
	b = appendUint(b, m.NumWaiters)
	b = appendUint(b, m.OrderID)
	b = appendUint(b, m.Count)
	return appendBool(b, m.Waiting)
}

func (m *ListItem) read(c *cursor) {
	m.Name = c.bytes("semaphores.name")
	m.Limit = c.uint("semaphores.limit")
	m.Used = c.uint("semaphores.used")
	m.Ephemeral = c.bool("semaphores.ephemeral")
	m.Version = c.uint("semaphores.version")
	m.DataLen = c.uint("semaphores.data len")
	m.NumOwners = c.uint("semaphores.num owners")
	m.NumWaiters = c.uint("semaphores.num waiters")
	m.OrderID = c.uint("semaphores.order id")
	m.Count = c.uint("semaphores.count")
	m.Waiting = c.bool("semaphores.waiting")
}
