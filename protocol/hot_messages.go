package protocol

// The messages of an acquire and a release, and those of a poll of a rollout, are
// most of the traffic. They are written by hand; their structs stand with the others of their
// family.

func (*Acquire) fields(*fields)       {} // nothing is described of these
func (*AcquireReply) fields(*fields)  {}
func (*AcquireResult) fields(*fields) {}
func (*Release) fields(*fields)       {}
func (*ReleaseReply) fields(*fields)  {}

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

// part reads a part whose head is the next byte.
func (c *cursor) part(field string, p Message) {
	f := fields{pass: decode, in: *c}
	o := f.enter(field)
	p.fields(&f)
	f.leave(o)
	*c = f.in
}

// hasPart reports whether there is a part to read. One that is nil counts as left out.
func (c *cursor) hasPart(field string) bool {
	return c.left > 0 && (len(c.rest) == 0 || c.rest[0] != nilByte || c.count(field) != 0)
}

func (m *Acquire) AppendBody(b []byte) []byte {
	n := 8
	if m.Options != nil {
		n = 9
	}
	b = m.Head.append(appendArray(b, n))
	b = appendBin(b, m.Name)
	b = appendUint(b, m.Count)
	b = appendUint(b, m.Timeout)
	b = appendBin(b, m.Data)
	b = appendBool(b, m.Ephemeral)
	if m.Options != nil {
		b = AppendBody(b, m.Options)
	}
	return b
}

func (m *Acquire) DecodeBody(body []byte) error {
	c := openBody(body, "acquire")
	m.Head.read(&c)
	m.Name = c.bytes("name")
	m.Count = c.uint("count")
	m.Timeout = c.uint("timeout")
	m.Data = c.bytes("data")
	m.Ephemeral = c.bool("ephemeral")
	m.Options = nil
	if c.left > 0 && c.hasPart("options") {
		m.Options = new(AcquireOptions)
		c.part("options", m.Options)
	}
	return c.end()
}

func (m *AcquireReply) AppendBody(b []byte) []byte {
	if m.Grant != nil {
		b = appendUint(appendArray(b, 3), uint64(m.State))
		return AppendBody(appendUint(b, m.OrderID), m.Grant)
	}
	b = appendArray(b, 2)
	b = appendUint(b, uint64(m.State))
	return appendUint(b, m.OrderID)
}

func (m *AcquireReply) DecodeBody(body []byte) error {
	c := openBody(body, "acquire reply")
	m.State = AcquireState(c.uint8("state"))
	m.OrderID = c.uint("order id")
	m.Grant = c.grant()
	return c.end()
}

// grant reads a grant, which is left out for units of a plain semaphore.
func (c *cursor) grant() *Grant {
	if !c.hasPart("grant") {
		return nil
	}
	g := new(Grant)
	c.part("grant", g)
	return g
}

func (m *AcquireResult) AppendBody(b []byte) []byte {
	n := 6
	if m.Grant != nil {
		n = 7
	}
	b = appendArray(b, n)
	b = appendUint(b, m.Session)
	b = appendUint(b, m.Seq)
	b = appendUint(b, uint64(m.Status))
	b = appendUint(b, uint64(m.State))
	b = appendUint(b, m.OrderID)
	b = appendStr(b, m.Message)
	if m.Grant != nil {
		b = AppendBody(b, m.Grant)
	}
	return b
}

func (m *AcquireResult) DecodeBody(body []byte) error {
	c := openBody(body, "acquire result")
	m.Session = c.uint("session")
	m.Seq = c.uint("seq")
	m.Status = Status(c.uint8("status"))
	m.State = AcquireState(c.uint8("state"))
	m.OrderID = c.uint("order id")
	m.Message = c.str("message")
	m.Grant = c.grant()
	return c.end()
}

func (m *Release) AppendBody(b []byte) []byte {
	n := 5
	switch {
	case m.Bound != 0:
		n = 7
	case m.To != 0:
		n = 6
	}
	b = m.Head.append(appendArray(b, n))
	b = appendBin(b, m.Name)
	b = appendUint(b, m.OrderID)
	if n > 5 {
		b = appendUint(b, m.To)
	}
	if n > 6 {
		b = appendUint(b, uint64(m.Bound))
	}
	return b
}

func (m *Release) DecodeBody(body []byte) error {
	c := openBody(body, "release")
	m.Head.read(&c)
	m.Name = c.bytes("name")
	m.OrderID = c.uint("order id")
	m.To, m.Bound = 0, 0
	if c.left > 0 {
		m.To = c.uint("to")
	}
	if c.left > 0 {
		m.Bound = HoldEnd(c.uint8("bound"))
	}
	return c.end()
}

func (m *ReleaseReply) AppendBody(b []byte) []byte {
	if m.Transferred {
		return appendBool(appendBool(appendArray(b, 2), m.Released), true)
	}
	return appendBool(appendArray(b, 1), m.Released)
}

func (m *ReleaseReply) DecodeBody(body []byte) error {
	c := openBody(body, "release reply")
	m.Released = c.bool("released")
	m.Transferred = c.left > 0 && c.bool("transferred")
	return c.end()
}

// Validate checks name, then count 0, timeout and data, in this order.
func (m *Acquire) Validate() error {
	if n := len(m.Name); n > 0 && n <= MaxNameLen && m.Count > 0 && m.Timeout <= MaxAcquireTimeout &&
		len(m.Data) <= MaxDataLen && m.Seq > 0 && m.Options == nil {
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
	if m.Options != nil {
		m.checkOptions(&f)
	}
	return f.err()
}

func (m *Acquire) checkOptions(f *fields) {
	m.Options.fields(f)
	switch n := uint64(len(m.Options.Names)); {
	case m.Ephemeral && (m.Options.Priority != 0 || len(m.Options.Key) > 0 || len(m.Options.Labels) > 0 || n > 0):
		f.refuse("acquire of an ephemeral semaphore has options, which only persistent ones have; leave them out")
	case n > 0 && n != m.Count:
		f.refuse("%d slots are named for a count of %d; give their number as the count", n, m.Count)
	}
}

// Validate checks the name, that the units do not go to their owner, and the bound.
func (m *Release) Validate() error {
	if n := len(m.Name); n > 0 && n <= MaxNameLen && m.Seq > 0 && m.To == 0 && m.Bound == 0 {
		return nil
	}
	f := checker()
	f.name(&m.Name)
	f.head(&m.Head)
	if m.To != 0 && m.To == m.Session {
		f.refuse("release transfers to the session %d itself; name another one", m.To)
	}
	if m.Bound != 0 && m.Bound != HoldMaxHold && m.Bound != HoldPreempted {
		f.refuse("bound %d of a release is unknown; leave it out, or name %d or %d", m.Bound, HoldMaxHold,
			HoldPreempted)
	}
	return f.err()
}

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
