package protocol

func (n *NodeConfig) append(b []byte) []byte {
	b = appendArray(b, 12)
	b = appendUint(b, uint64(n.Fields))
	b = appendUint(b, n.SelfCheckPeriod)
	b = appendUint(b, n.GracePeriod)
	b = appendUint(b, uint64(n.ReadConsistency))
	b = appendUint(b, uint64(n.AttachConsistency))
	b = appendUint(b, uint64(n.CountersMode))
	b = appendUint(b, n.MaxSessions)
	b = appendUint(b, n.MaxSemaphores)
	b = appendUint(b, n.MaxBytes)
	b = appendUint(b, n.MaxWaiters)
	b = appendUint(b, n.MaxWatchers)
	return appendUint(b, n.MaxRequests)
}

// read reads the config as one field, an array of its own.
func (n *NodeConfig) read(c *cursor) {
	outer := c.enter("config")
	n.Fields = c.uint32("config.fields")
	n.SelfCheckPeriod = c.uint("config.self check period")
	n.GracePeriod = c.uint("config.grace period")
	n.ReadConsistency = Consistency(c.uint8("config.read consistency"))
	n.AttachConsistency = Consistency(c.uint8("config.attach consistency"))
	n.CountersMode = CountersMode(c.uint8("config.counters mode"))
	n.MaxSessions = c.uint("config.max sessions")
	n.MaxSemaphores = c.uint("config.max semaphores")
	n.MaxBytes = c.uint("config.max bytes")
	n.MaxWaiters = c.uint("config.max waiters")
	n.MaxWatchers = c.uint("config.max watchers")
	n.MaxRequests = c.uint("config.max requests")
	c.leave(outer)
}

// AppendBody makes a config alone a message, for those that keep or carry it by itself.
func (n *NodeConfig) AppendBody(b []byte) []byte { return n.append(b) }

func (n *NodeConfig) DecodeBody(body []byte) error {
	c := cursor{rest: body, left: 1, message: "node config"}
	n.read(&c)
	return c.end()
}

func (m *NodeCreate) AppendBody(b []byte) []byte {
	b = appendArray(b, 2)
	b = appendStr(b, m.Path)
	return m.Config.append(b)
}

func (m *NodeCreate) DecodeBody(body []byte) error {
	c := openBody(body, "node create")
	m.Path = c.str("path")
	m.Config.read(&c)
	return c.end()
}

func (m *NodeAlter) AppendBody(b []byte) []byte {
	b = appendArray(b, 2)
	b = appendStr(b, m.Path)
	return m.Config.append(b)
}

func (m *NodeAlter) DecodeBody(body []byte) error {
	c := openBody(body, "node alter")
	m.Path = c.str("path")
	m.Config.read(&c)
	return c.end()
}

func (m *NodeDescribe) AppendBody(b []byte) []byte {
	return appendStr(appendArray(b, 1), m.Path)
}

func (m *NodeDescribe) DecodeBody(body []byte) error {
	c := openBody(body, "node describe")
	m.Path = c.str("path")
	return c.end()
}

func (m *NodeDrop) AppendBody(b []byte) []byte {
	return appendStr(appendArray(b, 1), m.Path)
}

func (m *NodeDrop) DecodeBody(body []byte) error {
	c := openBody(body, "node drop")
	m.Path = c.str("path")
	return c.end()
}

func (m *NodeInfo) AppendBody(b []byte) []byte {
	b = appendArray(b, 6)
	b = appendUint(b, m.ID)
	b = appendStr(b, m.Path)
	b = appendUint(b, uint64(m.Tier))
	b = appendUint(b, m.Revision)
	b = m.Config.append(b)
	return appendUint(b, m.CreatedAt)
}

func (m *NodeInfo) read(c *cursor) {
	m.ID = c.uint("id")
	m.Path = c.str("path")
	m.Tier = c.uint8("tier")
	m.Revision = c.uint("revision")
	m.Config.read(c)
	m.CreatedAt = c.uint("created at")
}

func (m *NodeInfo) DecodeBody(body []byte) error {
	c := openBody(body, "node info")
	m.read(&c)
	return c.end()
}

func (m *NodeList) AppendBody(b []byte) []byte {
	b = appendArray(b, 3)
	b = appendStr(b, m.Prefix)
	b = appendBin(b, m.Cursor)
	return appendUint(b, uint64(m.Limit))
}

func (m *NodeList) DecodeBody(body []byte) error {
	c := openBody(body, "node list")
	m.Prefix = c.str("prefix")
	m.Cursor = c.bytes("cursor")
	m.Limit = c.uint32("limit")
	return c.end()
}

func (m *NodeListReply) AppendBody(b []byte) []byte {
	b = appendArray(b, 2)
	b = appendArray(b, len(m.Nodes))
	for i := range m.Nodes {
		b = m.Nodes[i].AppendBody(b)
	}
	return appendBin(b, m.Cursor)
}

func (m *NodeListReply) DecodeBody(body []byte) error {
	c := openBody(body, "node list reply")
	m.Nodes = list(&c, "nodes", 6, (*NodeInfo).read)
	m.Cursor = c.bytes("cursor")
	return c.end()
}
