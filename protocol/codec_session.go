package protocol

func (m *SessionStart) AppendBody(b []byte) []byte {
	b = appendArray(b, 6)
	b = appendUint(b, m.Node)
	b = appendBin(b, m.CreateID)
	b = appendBin(b, m.Key)
	b = appendUint(b, m.Timeout)
	b = appendStr(b, m.Description)
	return appendUint(b, m.Nonce)
}

func (m *SessionStart) DecodeBody(body []byte) error {
	c := openBody(body, "session start")
	m.Node = c.uint("node")
	m.CreateID = c.bytes("create id")
	m.Key = c.bytes("key")
	m.Timeout = c.uint("timeout")
	m.Description = c.str("description")
	m.Nonce = c.uint("nonce")
	return c.end()
}

func (m *SessionAttach) AppendBody(b []byte) []byte {
	b = appendArray(b, 7)
	b = appendUint(b, m.Session)
	b = appendUint(b, m.Node)
	b = appendUint(b, m.Epoch)
	b = appendBin(b, m.Key)
	b = appendUint(b, m.Timeout)
	b = appendStr(b, m.Description)
	return appendUint(b, m.Nonce)
}

func (m *SessionAttach) DecodeBody(body []byte) error {
	c := openBody(body, "session attach")
	m.Session = c.uint("session")
	m.Node = c.uint("node")
	m.Epoch = c.uint("epoch")
	m.Key = c.bytes("key")
	m.Timeout = c.uint("timeout")
	m.Description = c.str("description")
	m.Nonce = c.uint("nonce")
	return c.end()
}

func (m *SessionReply) AppendBody(b []byte) []byte {
	b = appendArray(b, 6)
	b = appendUint(b, m.Session)
	b = appendUint(b, m.Epoch)
	b = appendUint(b, m.Shard)
	b = appendUint(b, m.Timeout)
	b = appendUint(b, m.Grace)
	return appendBin(b, m.Ticket)
}

func (m *SessionReply) DecodeBody(body []byte) error {
	c := openBody(body, "session reply")
	m.Session = c.uint("session")
	m.Epoch = c.uint("epoch")
	m.Shard = c.uint("shard")
	m.Timeout = c.uint("timeout")
	m.Grace = c.uint("grace")
	m.Ticket = c.bytes("ticket")
	return c.end()
}

func (m *SessionStop) AppendBody(b []byte) []byte {
	b = appendArray(b, 2)
	b = appendUint(b, m.Session)
	return appendUint(b, m.Epoch)
}

func (m *SessionStop) DecodeBody(body []byte) error {
	c := openBody(body, "session stop")
	m.Session = c.uint("session")
	m.Epoch = c.uint("epoch")
	return c.end()
}

func (m *SessionKill) AppendBody(b []byte) []byte {
	b = appendArray(b, 3)
	b = appendUint(b, m.Session)
	b = appendUint(b, m.Node)
	return appendStr(b, m.Reason)
}

func (m *SessionKill) DecodeBody(body []byte) error {
	c := openBody(body, "session kill")
	m.Session = c.uint("session")
	m.Node = c.uint("node")
	m.Reason = c.str("reason")
	return c.end()
}

func (m *SessionDescribe) AppendBody(b []byte) []byte {
	b = appendArray(b, 2)
	b = appendUint(b, m.Session)
	return appendUint(b, m.Node)
}

func (m *SessionDescribe) DecodeBody(body []byte) error {
	c := openBody(body, "session describe")
	m.Session = c.uint("session")
	m.Node = c.uint("node")
	return c.end()
}

func (m *SessionInfo) AppendBody(b []byte) []byte {
	b = appendArray(b, 9)
	b = appendUint(b, m.Session)
	b = appendUint(b, m.Node)
	b = appendUint(b, uint64(m.State))
	b = appendUint(b, m.Epoch)
	b = appendUint(b, m.Timeout)
	b = appendUint(b, m.Remaining)
	b = appendStr(b, m.Description)
	b = appendStr(b, m.Client)
	return appendUint(b, m.CreatedAt)
}

func (m *SessionInfo) read(c *cursor) {
	m.Session = c.uint("session")
	m.Node = c.uint("node")
	m.State = SessionState(c.uint8("state"))
	m.Epoch = c.uint("epoch")
	m.Timeout = c.uint("timeout")
	m.Remaining = c.uint("remaining")
	m.Description = c.str("description")
	m.Client = c.str("client")
	m.CreatedAt = c.uint("created at")
}

func (m *SessionInfo) DecodeBody(body []byte) error {
	c := openBody(body, "session info")
	m.read(&c)
	return c.end()
}

func (m *SessionList) AppendBody(b []byte) []byte {
	b = appendArray(b, 4)
	b = appendUint(b, m.Shard)
	b = appendUint(b, m.Node)
	b = appendBin(b, m.Cursor)
	return appendUint(b, uint64(m.Limit))
}

func (m *SessionList) DecodeBody(body []byte) error {
	c := openBody(body, "session list")
	m.Shard = c.uint("shard")
	m.Node = c.uint("node")
	m.Cursor = c.bytes("cursor")
	m.Limit = c.uint32("limit")
	return c.end()
}

func (m *SessionListReply) AppendBody(b []byte) []byte {
	b = appendArray(b, 2)
	b = appendArray(b, len(m.Sessions))
	for i := range m.Sessions {
		b = m.Sessions[i].AppendBody(b)
	}
	return appendBin(b, m.Cursor)
}

func (m *SessionListReply) DecodeBody(body []byte) error {
	c := openBody(body, "session list reply")
	m.Sessions = list(&c, "sessions", 9, (*SessionInfo).read)
	m.Cursor = c.bytes("cursor")
	return c.end()
}

func (m *SessionEnded) AppendBody(b []byte) []byte {
	b = appendArray(b, 3)
	b = appendUint(b, m.Session)
	b = appendUint(b, uint64(m.Reason))
	return appendStr(b, m.Message)
}

func (m *SessionEnded) DecodeBody(body []byte) error {
	c := openBody(body, "session ended")
	m.Session = c.uint("session")
	m.Reason = EndReason(c.uint8("reason"))
	m.Message = c.str("message")
	return c.end()
}

func (m *TakenOver) AppendBody(b []byte) []byte {
	b = appendArray(b, 2)
	b = appendUint(b, m.Session)
	return appendUint(b, m.Epoch)
}

func (m *TakenOver) DecodeBody(body []byte) error {
	c := openBody(body, "taken over")
	m.Session = c.uint("session")
	m.Epoch = c.uint("epoch")
	return c.end()
}

func (m *Detached) AppendBody(b []byte) []byte {
	b = appendArray(b, 2)
	b = appendUint(b, m.Session)
	return appendUint(b, m.Epoch)
}

func (m *Detached) DecodeBody(body []byte) error {
	c := openBody(body, "detached")
	m.Session = c.uint("session")
	m.Epoch = c.uint("epoch")
	return c.end()
}
