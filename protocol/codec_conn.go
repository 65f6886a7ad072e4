package protocol

func (m *Hello) AppendBody(b []byte) []byte {
	b = appendArray(b, 5)
	b = appendStr(b, m.Magic)
	b = appendUint(b, uint64(m.Version))
	b = appendUint(b, m.Features)
	b = appendStr(b, m.Client)
	return appendBin(b, m.Token)
}

func (m *Hello) DecodeBody(body []byte) error {
	c := openBody(body, "hello")
	m.Magic = c.str("magic")
	m.Version = c.uint32("version")
	m.Features = c.uint("features")
	m.Client = c.str("client")
	m.Token = c.bytes("token")
	return c.end()
}

func (m *HelloReply) AppendBody(b []byte) []byte {
	b = appendArray(b, 10)
	b = appendUint(b, uint64(m.Version))
	b = appendUint(b, m.Features)
	b = appendStr(b, m.Server)
	b = appendStr(b, m.Cluster)
	b = appendUint(b, m.Instance)
	b = appendUint(b, uint64(m.MaxFrame))
	b = appendUint(b, uint64(m.MaxData))
	b = appendUint(b, uint64(m.Window))
	b = appendUint(b, m.MapVersion)
	return appendStr(b, m.Identity)
}

func (m *HelloReply) DecodeBody(body []byte) error {
	c := openBody(body, "hello reply")
	m.Version = c.uint32("version")
	m.Features = c.uint("features")
	m.Server = c.str("server")
	m.Cluster = c.str("cluster")
	m.Instance = c.uint("instance")
	m.MaxFrame = c.uint32("max frame")
	m.MaxData = c.uint32("max data")
	m.Window = c.uint32("window")
	m.MapVersion = c.uint("map version")
	m.Identity = c.str("identity")
	return c.end()
}

func (m *Failure) AppendBody(b []byte) []byte {
	b = appendStr(appendArray(b, 3), m.Message)
	return appendUint(appendUint(b, m.Master), m.Term)
}

func (m *Failure) DecodeBody(body []byte) error {
	c := openBody(body, "failure")
	m.Message = c.str("message")
	m.Master = c.uint("master")
	m.Term = c.uint("term")
	return c.end()
}

func (m *PresentTicket) AppendBody(b []byte) []byte {
	b = appendBin(appendArray(b, 2), m.Ticket)
	return appendStr(b, m.Description)
}

func (m *PresentTicket) DecodeBody(body []byte) error {
	c := openBody(body, "present ticket")
	m.Ticket = c.bytes("ticket")
	m.Description = c.str("description")
	return c.end()
}

func (m *Empty) AppendBody(b []byte) []byte { return appendArray(b, 0) }

func (m *Empty) DecodeBody(body []byte) error {
	c := openBody(body, "empty")
	return c.end()
}

func (m *Goodbye) AppendBody(b []byte) []byte {
	b = appendArray(b, 2)
	b = appendUint(b, uint64(m.Status))
	return appendStr(b, m.Message)
}

func (m *Goodbye) DecodeBody(body []byte) error {
	c := openBody(body, "goodbye")
	m.Status = Status(c.uint8("status"))
	m.Message = c.str("message")
	return c.end()
}
