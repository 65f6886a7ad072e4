package protocol

// The messages of an acquire and a release, and what a server does for a poll of a rollout, are
// most of the traffic. They are written by hand; their structs stand with the others of their
// family.

func (m *Empty) AppendBody(b []byte) []byte { return appendArray(b, 0) }

func (m *Empty) DecodeBody(body []byte) error {
	c := openBody(body, "empty")
	return c.end()
}

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

// Validate checks name, then count 0, timeout and data, in this order.
func (m *Acquire) Validate() error {
	if n := len(m.Name); n > 0 && n <= MaxNameLen && m.Count > 0 && m.Timeout <= MaxAcquireTimeout &&
		len(m.Data) <= MaxDataLen && m.Seq > 0 {
		return nil
	}
	f := checker()
	f.name(&m.Name)
	if m.Count == 0 {
		f.refuse("acquire count is 0; it must be 1 up to the semaphore's limit")
	}
	if m.Timeout != Forever {
		f.millis("timeout", &m.Timeout, "acquire timeout", MaxAcquireTimeout)
	}
	f.data("data", &m.Data)
	f.head(&m.Head)
	return f.err()
}

// Validate checks the name.
func (m *Release) Validate() error {
	if n := len(m.Name); n > 0 && n <= MaxNameLen && m.Seq > 0 {
		return nil
	}
	f := checker()
	f.name(&m.Name)
	f.head(&m.Head)
	return f.err()
}

// Validate has nothing to check.
func (m *Empty) Validate() error { return nil }

func (m *TrackPoll) DecodeBody(body []byte) error {
	c := openBody(body, "track poll")
	m.Session = c.uint("session")
	m.Name = c.bytes("name")
	m.ID = c.str("id")
	m.Incarnation = c.uint("incarnation")
	outer, r := c.enter("report"), &m.Report
	r.Seq = c.uint("report.seq")
	r.Current = c.uint("report.current")
	r.Target = c.uint("report.target")
	r.Code = c.str("report.code")
	r.Message = c.str("report.message")
	r.Attempts = c.uint("report.attempts")
	c.leave(outer)
	m.WithPayload = c.bool("with payload")
	return c.end()
}

func (m *TrackPollReply) AppendBody(b []byte) []byte {
	b = appendUint(appendArray(b, 8), m.Version)
	b = appendUint(b, uint64(m.Status))
	b = appendUint(b, uint64(m.State))
	b = appendUint(b, m.Until)
	b = appendUint(b, m.RetryAfter)
	b = appendUint(b, m.Generation)
	b = appendBool(b, m.HasPayload)
	return appendBin(b, m.Payload)
}
