package protocol

func (o *ProcessOptions) append(b []byte) []byte {
	b = appendArray(b, 6)
	b = appendUint(b, uint64(o.Election))
	b = appendUint(b, o.Debounce)
	b = appendUint(b, o.RoundTimeout)
	b = appendUint(b, o.BackoffMin)
	b = appendUint(b, o.BackoffMax)
	return appendUint(b, o.Return)
}

func (o *ProcessOptions) read(c *cursor) {
	o.Election = ProcessElection(c.uint8("options.election"))
	o.Debounce = c.uint("options.debounce")
	o.RoundTimeout = c.uint("options.round timeout")
	o.BackoffMin = c.uint("options.backoff min")
	o.BackoffMax = c.uint("options.backoff max")
	o.Return = c.uint("options.return")
}

func (m *ProcessJoin) AppendBody(b []byte) []byte {
	b = m.Head.append(appendArray(b, 8))
	b = appendBin(b, m.Name)
	b = appendStr(b, m.Key)
	b = appendBin(b, m.Data)
	b = appendUint(b, uint64(m.Weight))
	return m.Options.append(b)
}

func (m *ProcessJoin) DecodeBody(body []byte) error {
	c := openBody(body, "process join")
	m.Head.read(&c)
	m.Name = c.bytes("name")
	m.Key = c.str("key")
	m.Data = c.bytes("data")
	m.Weight = c.uint32("weight")
	outer := c.enter("options")
	m.Options.read(&c)
	c.leave(outer)
	return c.end()
}

func (m *ProcessJoinReply) AppendBody(b []byte) []byte {
	b = appendArray(b, 4)
	b = appendUint(b, m.Order)
	b = appendUint(b, m.Topology)
	b = appendBool(b, m.Returned)
	return appendBool(b, m.AlreadyMember)
}

func (m *ProcessJoinReply) DecodeBody(body []byte) error {
	c := openBody(body, "process join reply")
	m.Order = c.uint("order")
	m.Topology = c.uint("topology")
	m.Returned = c.bool("returned")
	m.AlreadyMember = c.bool("again")
	return c.end()
}

func (m *ProcessLeave) AppendBody(b []byte) []byte {
	b = m.Head.append(appendArray(b, 4))
	return appendBin(b, m.Name)
}

func (m *ProcessLeave) DecodeBody(body []byte) error {
	c := openBody(body, "process leave")
	m.Head.read(&c)
	m.Name = c.bytes("name")
	return c.end()
}

func (m *ProcessLeaveReply) AppendBody(b []byte) []byte {
	b = appendArray(b, 1)
	return appendUint(b, m.CompletedEpoch)
}

func (m *ProcessLeaveReply) DecodeBody(body []byte) error {
	c := openBody(body, "process leave reply")
	m.CompletedEpoch = c.uint("settled")
	return c.end()
}

func (m *ProcessConfirm) AppendBody(b []byte) []byte {
	b = appendArray(b, 4)
	b = appendUint(b, m.Session)
	b = appendBin(b, m.Name)
	b = appendUint(b, m.Epoch)
	return appendUint(b, uint64(m.Step))
}

func (m *ProcessConfirm) DecodeBody(body []byte) error {
	c := openBody(body, "process confirm")
	m.Session = c.uint("session")
	m.Name = c.bytes("name")
	m.Epoch = c.uint("epoch")
	m.Step = ProcessStep(c.uint8("step"))
	return c.end()
}

func (m *ProcessFail) AppendBody(b []byte) []byte {
	b = appendArray(b, 4)
	b = appendUint(b, m.Session)
	b = appendBin(b, m.Name)
	b = appendUint(b, m.Epoch)
	return appendStr(b, m.Text)
}

func (m *ProcessFail) DecodeBody(body []byte) error {
	c := openBody(body, "process fail")
	m.Session = c.uint("session")
	m.Name = c.bytes("name")
	m.Epoch = c.uint("epoch")
	m.Text = c.str("text")
	return c.end()
}

func (m *ProcessComplete) AppendBody(b []byte) []byte {
	b = m.Head.append(appendArray(b, 6))
	b = appendBin(b, m.Name)
	b = appendUint(b, m.Epoch)
	return appendBin(b, m.Result)
}

func (m *ProcessComplete) DecodeBody(body []byte) error {
	c := openBody(body, "process complete")
	m.Head.read(&c)
	m.Name = c.bytes("name")
	m.Epoch = c.uint("epoch")
	m.Result = c.bytes("result")
	return c.end()
}

func (m *ProcessForceRound) AppendBody(b []byte) []byte {
	b = appendArray(b, 3)
	b = appendUint(b, m.Node)
	b = appendBin(b, m.Name)
	return appendStr(b, m.Text)
}

func (m *ProcessForceRound) DecodeBody(body []byte) error {
	c := openBody(body, "process force")
	m.Node = c.uint("node")
	m.Name = c.bytes("name")
	m.Text = c.str("text")
	return c.end()
}

func (m *ProcessEvict) AppendBody(b []byte) []byte {
	b = appendArray(b, 4)
	b = appendUint(b, m.Node)
	b = appendBin(b, m.Name)
	b = appendUint(b, m.Session)
	return appendStr(b, m.Text)
}

func (m *ProcessEvict) DecodeBody(body []byte) error {
	c := openBody(body, "process evict")
	m.Node = c.uint("node")
	m.Name = c.bytes("name")
	m.Session = c.uint("session")
	m.Text = c.str("text")
	return c.end()
}

func (m *ProcessAlter) AppendBody(b []byte) []byte {
	b = appendArray(b, 3)
	b = appendUint(b, m.Node)
	b = appendBin(b, m.Name)
	return m.Options.append(b)
}

func (m *ProcessAlter) DecodeBody(body []byte) error {
	c := openBody(body, "process alter")
	m.Node = c.uint("node")
	m.Name = c.bytes("name")
	outer := c.enter("options")
	m.Options.read(&c)
	c.leave(outer)
	return c.end()
}

func (m *ProcessSync) AppendBody(b []byte) []byte {
	b = appendArray(b, 3)
	b = appendUint(b, m.Session)
	b = appendBin(b, m.Name)
	return appendUint(b, m.Epoch)
}

func (m *ProcessSync) DecodeBody(body []byte) error {
	c := openBody(body, "process sync")
	m.Session = c.uint("session")
	m.Name = c.bytes("name")
	m.Epoch = c.uint("epoch")
	return c.end()
}

func (m *ProcessRequest) AppendBody(b []byte) []byte {
	b = appendArray(b, 7)
	b = appendUint(b, m.Session)
	b = appendBin(b, m.Name)
	b = appendUint(b, m.Epoch)
	b = appendUint(b, m.Number)
	b = appendUint(b, m.Low)
	b = appendArray(b, len(m.To))
	for _, v := range m.To {
		b = appendUint(b, v)
	}
	return appendBin(b, m.Payload)
}

func (m *ProcessRequest) DecodeBody(body []byte) error {
	c := openBody(body, "process request")
	m.Session = c.uint("session")
	m.Name = c.bytes("name")
	m.Epoch = c.uint("epoch")
	m.Number = c.uint("number")
	m.Low = c.uint("low")
	m.To = c.uints("to")
	m.Payload = c.bytes("payload")
	return c.end()
}

func (m *ProcessReply) AppendBody(b []byte) []byte {
	b = appendArray(b, 7)
	b = appendUint(b, m.Session)
	b = appendBin(b, m.Name)
	b = appendUint(b, m.Epoch)
	b = appendUint(b, m.To)
	b = appendUint(b, m.Number)
	b = appendBool(b, m.Refused)
	return appendBin(b, m.Payload)
}

func (m *ProcessReply) DecodeBody(body []byte) error {
	c := openBody(body, "process reply")
	m.Session = c.uint("session")
	m.Name = c.bytes("name")
	m.Epoch = c.uint("epoch")
	m.To = c.uint("to")
	m.Number = c.uint("number")
	m.Refused = c.bool("refused")
	m.Payload = c.bytes("payload")
	return c.end()
}

func (m *ProcessRound) AppendBody(b []byte) []byte {
	return AppendProcessMembers(m.appendHead(b), m.Members)
}

// AppendShared is AppendBody with a list of members that AppendProcessMembers encoded: a round is told to all of them, with the same list.
func (m *ProcessRound) AppendShared(b, members []byte) []byte {
	return append(m.appendHead(b), members...)
}

// AppendProcessMembers encodes a list of members as it stands in a ProcessRound.
func AppendProcessMembers(b []byte, list []ProcessMember) []byte {
	b = appendArray(b, len(list))
	for i := range list {
		b = list[i].append(b)
	}
	return b
}

func (m *ProcessRound) appendHead(b []byte) []byte {
	b = appendArray(b, 13)
	b = appendUint(b, m.Session)
	b = appendBin(b, m.Name)
	b = appendUint(b, uint64(m.Kind))
	b = appendUint(b, uint64(m.Removal))
	b = appendUint(b, m.Epoch)
	b = appendUint(b, m.Topology)
	b = appendUint(b, m.Coordinator)
	b = appendUint(b, m.Attempt)
	b = appendUint(b, m.Token)
	b = appendUint(b, m.CompletedEpoch)
	b = appendBin(b, m.Result)
	return appendStr(b, m.Text)
}

func (m *ProcessRound) DecodeBody(body []byte) error {
	c := openBody(body, "process round")
	m.Session = c.uint("session")
	m.Name = c.bytes("name")
	m.Kind = ProcessRoundKind(c.uint8("kind"))
	m.Removal = ProcessRemoval(c.uint8("removal"))
	m.Epoch = c.uint("epoch")
	m.Topology = c.uint("topology")
	m.Coordinator = c.uint("coordinator")
	m.Attempt = c.uint("attempt")
	m.Token = c.uint("token")
	m.CompletedEpoch = c.uint("settled")
	m.Result = c.bytes("result")
	m.Text = c.str("text")
	m.Members = list(&c, "members", 6, (*ProcessMember).read)
	return c.end()
}

func (m *ProcessMember) append(b []byte) []byte {
	b = appendArray(b, 6)
	b = appendUint(b, m.Session)
	b = appendUint(b, m.Order)
	b = appendStr(b, m.Key)
	b = appendStr(b, m.Identity)
	b = appendBin(b, m.Data)
	return appendUint(b, uint64(m.Weight))
}

func (m *ProcessMember) read(c *cursor) {
	m.Session = c.uint("member.session")
	m.Order = c.uint("member.order")
	m.Key = c.str("member.key")
	m.Identity = c.str("member.identity")
	m.Data = c.bytes("member.data")
	m.Weight = c.uint32("member.weight")
}

func (m *ProcessMessage) AppendBody(b []byte) []byte {
	b = appendArray(b, 8)
	b = appendUint(b, m.Session)
	b = appendBin(b, m.Name)
	b = appendUint(b, uint64(m.Kind))
	b = appendUint(b, m.From)
	b = appendUint(b, m.Epoch)
	b = appendUint(b, m.Number)
	b = appendUint(b, m.Low)
	return appendBin(b, m.Payload)
}

func (m *ProcessMessage) DecodeBody(body []byte) error {
	c := openBody(body, "process message")
	m.Session = c.uint("session")
	m.Name = c.bytes("name")
	m.Kind = ProcessMessageKind(c.uint8("kind"))
	m.From = c.uint("from")
	m.Epoch = c.uint("epoch")
	m.Number = c.uint("number")
	m.Low = c.uint("low")
	m.Payload = c.bytes("payload")
	return c.end()
}
