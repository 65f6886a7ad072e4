package protocol

func (m *ProcessDescribe) AppendBody(b []byte) []byte {
	b = appendArray(b, 7)
	b = appendUint(b, m.Node)
	b = appendBin(b, m.Name)
	b = appendUint(b, uint64(m.Flags))
	b = appendUint(b, uint64(m.Consistency))
	b = appendUint(b, m.MinIndex)
	b = appendBin(b, m.Cursor)
	return appendUint(b, uint64(m.Limit))
}

func (m *ProcessDescribe) DecodeBody(body []byte) error {
	c := openBody(body, "process describe")
	m.Node = c.uint("node")
	m.Name = c.bytes("name")
	m.Flags = c.uint8("flags")
	m.Consistency = Consistency(c.uint8("consistency"))
	m.MinIndex = c.uint("min index")
	m.Cursor = c.bytes("cursor")
	m.Limit = c.uint32("limit")
	return c.end()
}

func (m *ProcessStatus) AppendBody(b []byte) []byte {
	b = appendArray(b, 17)
	b = appendUint(b, m.Index)
	b = appendUint(b, m.Revision)
	b = appendBin(b, m.Name)
	b = appendUint(b, m.Clock)
	b = appendUint(b, uint64(m.Phase))
	b = appendUint(b, m.Epoch)
	b = appendUint(b, m.Topology)
	b = appendUint(b, m.Coordinator)
	b = appendUint(b, m.Attempt)
	b = appendUint(b, m.Started)
	b = appendUint(b, m.Start)
	b = appendUint(b, m.NumMembers)
	b = m.Options.append(b)
	b = m.Counters.append(b)
	b = appendArray(b, len(m.Members))
	for i := range m.Members {
		b = m.Members[i].append(b)
	}
	b = appendArray(b, len(m.History))
	for i := range m.History {
		b = m.History[i].append(b)
	}
	return appendBin(b, m.Cursor)
}

func (m *ProcessStatus) DecodeBody(body []byte) error {
	c := openBody(body, "process status")
	m.read(&c)
	return c.end()
}

func (m *ProcessStatus) read(c *cursor) {
	m.Index = c.uint("index")
	m.Revision = c.uint("revision")
	m.Name = c.bytes("name")
	m.Clock = c.uint("clock")
	m.Phase = ProcessPhase(c.uint8("phase"))
	m.Epoch = c.uint("epoch")
	m.Topology = c.uint("topology")
	m.Coordinator = c.uint("coordinator")
	m.Attempt = c.uint("attempt")
	m.Started = c.uint("started")
	m.Start = c.uint("start")
	m.NumMembers = c.uint("num members")
	outer := c.enter("options")
	m.Options.read(c)
	c.leave(outer)
	outer = c.enter("tally")
	m.Counters.read(c)
	c.leave(outer)
	m.Members = list(c, "members", 5, (*ProcessMemberInfo).read)
	m.History = list(c, "history", 11, (*ProcessHistoryRound).read)
	m.Cursor = c.bytes("cursor")
}

func (t *ProcessCounters) append(b []byte) []byte {
	b = appendArray(b, 7)
	b = appendUint(b, t.Changes)
	b = appendUint(b, t.Started)
	b = appendUint(b, t.Completed)
	b = appendUint(b, t.Cancelled)
	b = appendUint(b, t.Failed)
	b = appendUint(b, t.Returned)
	return appendUint(b, t.Stale)
}

func (t *ProcessCounters) read(c *cursor) {
	t.Changes = c.uint("tally.changes")
	t.Started = c.uint("tally.started")
	t.Completed = c.uint("tally.completed")
	t.Cancelled = c.uint("tally.cancelled")
	t.Failed = c.uint("tally.failed")
	t.Returned = c.uint("tally.returned")
	t.Stale = c.uint("tally.stale")
}

func (p *ProcessMemberInfo) append(b []byte) []byte {
	b = appendArray(b, 5)
	b = p.Member.append(b)
	b = appendUint(b, uint64(p.Status))
	b = appendUint(b, p.Until)
	b = appendUint(b, p.Token)
	return appendUint(b, p.Joined)
}

func (p *ProcessMemberInfo) read(c *cursor) {
	outer := c.enter("members.member")
	p.Member.read(c)
	c.leave(outer)
	p.Status = ProcessMemberStatus(c.uint8("members.standing"))
	p.Until = c.uint("members.until")
	p.Token = c.uint("members.token")
	p.Joined = c.uint("members.joined")
}

func (e *ProcessHistoryRound) append(b []byte) []byte {
	b = appendArray(b, 11)
	b = appendUint(b, e.Epoch)
	b = appendUint(b, e.Topology)
	b = appendUint(b, e.Coordinator)
	b = appendUint(b, e.Size)
	b = appendUint(b, e.Attempt)
	b = appendUint(b, e.Wall)
	b = appendUint(b, e.Prepared)
	b = appendUint(b, e.Decided)
	b = appendUint(b, e.Duration)
	b = appendUint(b, uint64(e.Outcome))
	return appendStr(b, e.Text)
}

func (e *ProcessHistoryRound) read(c *cursor) {
	e.Epoch = c.uint("history.epoch")
	e.Topology = c.uint("history.topology")
	e.Coordinator = c.uint("history.coordinator")
	e.Size = c.uint("history.size")
	e.Attempt = c.uint("history.attempt")
	e.Wall = c.uint("history.wall")
	e.Prepared = c.uint("history.prepared")
	e.Decided = c.uint("history.decided")
	e.Duration = c.uint("history.lasted")
	e.Outcome = ProcessOutcome(c.uint8("history.outcome"))
	e.Text = c.str("history.text")
}

func (m *ProcessList) AppendBody(b []byte) []byte {
	b = appendArray(b, 7)
	b = appendUint(b, m.Shard)
	b = appendUint(b, m.Node)
	b = appendBin(b, m.Prefix)
	b = appendBin(b, m.Cursor)
	b = appendUint(b, uint64(m.Limit))
	b = appendUint(b, uint64(m.Consistency))
	return appendUint(b, m.MinIndex)
}

func (m *ProcessList) DecodeBody(body []byte) error {
	c := openBody(body, "process list")
	m.Shard = c.uint("shard")
	m.Node = c.uint("node")
	m.Prefix = c.bytes("prefix")
	m.Cursor = c.bytes("cursor")
	m.Limit = c.uint32("limit")
	m.Consistency = Consistency(c.uint8("consistency"))
	m.MinIndex = c.uint("min index")
	return c.end()
}

func (m *ProcessListReply) AppendBody(b []byte) []byte {
	b = appendArray(b, 3)
	b = appendUint(b, m.Index)
	b = appendArray(b, len(m.Processes))
	for i := range m.Processes {
		b = m.Processes[i].append(b)
	}
	return appendBin(b, m.Cursor)
}

func (m *ProcessListReply) DecodeBody(body []byte) error {
	c := openBody(body, "process list reply")
	m.Index = c.uint("index")
	m.Processes = list(&c, "processes", 6, (*ProcessItem).read)
	m.Cursor = c.bytes("cursor")
	return c.end()
}

func (i *ProcessItem) append(b []byte) []byte {
	b = appendArray(b, 6)
	b = appendBin(b, i.Name)
	b = appendUint(b, uint64(i.Phase))
	b = appendUint(b, i.Epoch)
	b = appendUint(b, i.Topology)
	b = appendUint(b, i.Coordinator)
	return appendUint(b, i.NumMembers)
}

func (i *ProcessItem) read(c *cursor) {
	i.Name = c.bytes("processes.name")
	i.Phase = ProcessPhase(c.uint8("processes.phase"))
	i.Epoch = c.uint("processes.epoch")
	i.Topology = c.uint("processes.topology")
	i.Coordinator = c.uint("processes.coordinator")
	i.NumMembers = c.uint("processes.num members")
}

func (m *ProcessWatch) AppendBody(b []byte) []byte {
	b = appendArray(b, 2)
	b = appendUint(b, m.Node)
	return appendBin(b, m.Name)
}

func (m *ProcessWatch) DecodeBody(body []byte) error {
	c := openBody(body, "process watch")
	m.Node = c.uint("node")
	m.Name = c.bytes("name")
	return c.end()
}

func (m *ProcessState) AppendBody(b []byte) []byte {
	b = appendArray(b, 4)
	b = appendBool(b, m.First)
	b = appendBool(b, m.Last)
	b = appendBool(b, m.Exists)
	return m.Status.AppendBody(b)
}

func (m *ProcessState) DecodeBody(body []byte) error {
	c := openBody(body, "process state")
	m.First = c.bool("first")
	m.Last = c.bool("last")
	m.Exists = c.bool("exists")
	outer := c.enter("status")
	m.Status.read(&c)
	c.leave(outer)
	return c.end()
}

func (m *ProcessChanges) AppendBody(b []byte) []byte {
	b = appendArray(b, 3)
	b = appendUint(b, m.Revision)
	b = appendUint(b, m.Wall)
	b = appendArray(b, len(m.Changes))
	for i := range m.Changes {
		b = m.Changes[i].append(b)
	}
	return b
}

func (m *ProcessChanges) DecodeBody(body []byte) error {
	c := openBody(body, "process changes")
	m.Revision = c.uint("revision")
	m.Wall = c.uint("wall")
	m.Changes = list(&c, "changes", 7, (*ProcessChange).read)
	return c.end()
}

func (v *ProcessChange) append(b []byte) []byte {
	b = appendArray(b, 7)
	b = appendUint(b, uint64(v.Kind))
	b = appendUint(b, uint64(v.Phase))
	b = appendUint(b, uint64(v.Outcome))
	b = appendUint(b, v.Epoch)
	b = appendUint(b, v.Topology)
	b = appendUint(b, v.Session)
	return appendStr(b, v.Text)
}

func (v *ProcessChange) read(c *cursor) {
	v.Kind = ProcessChangeKind(c.uint8("changes.kind"))
	v.Phase = ProcessPhase(c.uint8("changes.phase"))
	v.Outcome = ProcessOutcome(c.uint8("changes.outcome"))
	v.Epoch = c.uint("changes.epoch")
	v.Topology = c.uint("changes.topology")
	v.Session = c.uint("changes.session")
	v.Text = c.str("changes.text")
}
