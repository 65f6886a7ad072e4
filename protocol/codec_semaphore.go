package protocol

// append writes the head's fields flat, into the array of the request it starts.
func (h *Head) append(b []byte) []byte {
	b = appendUint(b, h.Session)
	b = appendUint(b, h.Seq)
	return appendUint(b, h.Low)
}

func (h *Head) read(c *cursor) {
	h.Session = c.uint("session")
	h.Seq = c.uint("seq")
	h.Low = c.uint("low")
}

func (m *Create) AppendBody(b []byte) []byte {
	b = m.Head.append(appendArray(b, 6))
	b = appendBin(b, m.Name)
	b = appendUint(b, m.Limit)
	return appendBin(b, m.Data)
}

func (m *Create) DecodeBody(body []byte) error {
	c := openBody(body, "create")
	m.Head.read(&c)
	m.Name = c.bytes("name")
	m.Limit = c.uint("limit")
	m.Data = c.bytes("data")
	return c.end()
}

func (m *Update) AppendBody(b []byte) []byte {
	b = m.Head.append(appendArray(b, 6))
	b = appendBin(b, m.Name)
	b = appendBin(b, m.Data)
	return appendUint(b, m.Expected)
}

func (m *Update) DecodeBody(body []byte) error {
	c := openBody(body, "update")
	m.Head.read(&c)
	m.Name = c.bytes("name")
	m.Data = c.bytes("data")
	m.Expected = c.uint("expected")
	return c.end()
}

func (m *UpdateReply) AppendBody(b []byte) []byte {
	return appendUint(appendArray(b, 1), m.Version)
}

func (m *UpdateReply) DecodeBody(body []byte) error {
	c := openBody(body, "update reply")
	m.Version = c.uint("version")
	return c.end()
}

func (m *Resize) AppendBody(b []byte) []byte {
	b = m.Head.append(appendArray(b, 5))
	b = appendBin(b, m.Name)
	return appendUint(b, m.Limit)
}

func (m *Resize) DecodeBody(body []byte) error {
	c := openBody(body, "resize")
	m.Head.read(&c)
	m.Name = c.bytes("name")
	m.Limit = c.uint("limit")
	return c.end()
}

func (m *Delete) AppendBody(b []byte) []byte {
	b = m.Head.append(appendArray(b, 5))
	b = appendBin(b, m.Name)
	return appendBool(b, m.Force)
}

func (m *Delete) DecodeBody(body []byte) error {
	c := openBody(body, "delete")
	m.Head.read(&c)
	m.Name = c.bytes("name")
	m.Force = c.bool("force")
	return c.end()
}

func (m *Acquire) AppendBody(b []byte) []byte {
	b = m.Head.append(appendArray(b, 8))
	b = appendBin(b, m.Name)
	b = appendUint(b, m.Count)
	b = appendUint(b, m.Timeout)
	b = appendBin(b, m.Data)
	return appendBool(b, m.Ephemeral)
}

func (m *Acquire) DecodeBody(body []byte) error {
	c := openBody(body, "acquire")
	m.Head.read(&c)
	m.Name = c.bytes("name")
	m.Count = c.uint("count")
	m.Timeout = c.uint("timeout")
	m.Data = c.bytes("data")
	m.Ephemeral = c.bool("ephemeral")
	return c.end()
}

func (m *AcquireReply) AppendBody(b []byte) []byte {
	b = appendArray(b, 2)
	b = appendUint(b, uint64(m.State))
	return appendUint(b, m.OrderID)
}

func (m *AcquireReply) DecodeBody(body []byte) error {
	c := openBody(body, "acquire reply")
	m.State = AcquireState(c.uint8("state"))
	m.OrderID = c.uint("order id")
	return c.end()
}

func (m *AcquireResult) AppendBody(b []byte) []byte {
	b = appendArray(b, 6)
	b = appendUint(b, m.Session)
	b = appendUint(b, m.Seq)
	b = appendUint(b, uint64(m.Status))
	b = appendUint(b, uint64(m.State))
	b = appendUint(b, m.OrderID)
	return appendStr(b, m.Message)
}

func (m *AcquireResult) DecodeBody(body []byte) error {
	c := openBody(body, "acquire result")
	m.Session = c.uint("session")
	m.Seq = c.uint("seq")
	m.Status = Status(c.uint8("status"))
	m.State = AcquireState(c.uint8("state"))
	m.OrderID = c.uint("order id")
	m.Message = c.str("message")
	return c.end()
}

func (m *Release) AppendBody(b []byte) []byte {
	b = m.Head.append(appendArray(b, 5))
	b = appendBin(b, m.Name)
	return appendUint(b, m.OrderID)
}

func (m *Release) DecodeBody(body []byte) error {
	c := openBody(body, "release")
	m.Head.read(&c)
	m.Name = c.bytes("name")
	m.OrderID = c.uint("order id")
	return c.end()
}

func (m *ReleaseReply) AppendBody(b []byte) []byte {
	return appendBool(appendArray(b, 1), m.Released)
}

func (m *ReleaseReply) DecodeBody(body []byte) error {
	c := openBody(body, "release reply")
	m.Released = c.bool("released")
	return c.end()
}

func (m *ForceRelease) AppendBody(b []byte) []byte {
	b = appendArray(b, 5)
	b = appendUint(b, m.Node)
	b = appendBin(b, m.Name)
	b = appendUint(b, m.First)
	b = appendUint(b, m.Last)
	return appendStr(b, m.Reason)
}

func (m *ForceRelease) DecodeBody(body []byte) error {
	c := openBody(body, "force release")
	m.Node = c.uint("node")
	m.Name = c.bytes("name")
	m.First = c.uint("first")
	m.Last = c.uint("last")
	m.Reason = c.str("reason")
	return c.end()
}

func (m *ForceReleaseReply) AppendBody(b []byte) []byte {
	return appendUint(appendArray(b, 1), m.Released)
}

func (m *ForceReleaseReply) DecodeBody(body []byte) error {
	c := openBody(body, "force release reply")
	m.Released = c.uint("released")
	return c.end()
}

func (m *LeaseLost) AppendBody(b []byte) []byte {
	b = appendArray(b, 4)
	b = appendUint(b, m.Session)
	b = appendBin(b, m.Name)
	b = appendUint(b, m.OrderID)
	return appendStr(b, m.Message)
}

func (m *LeaseLost) DecodeBody(body []byte) error {
	c := openBody(body, "lease lost")
	m.Session = c.uint("session")
	m.Name = c.bytes("name")
	m.OrderID = c.uint("order id")
	m.Message = c.str("message")
	return c.end()
}
