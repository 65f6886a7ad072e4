package protocol

func (t *TrackConfig) append(b []byte) []byte {
	b = appendArray(b, 13)
	b = appendUint(b, uint64(t.Source))
	b = appendUint(b, uint64(t.DelayFrom))
	b = appendArray(b, len(t.Locations))
	for i := range t.Locations {
		b = t.Locations[i].append(b)
	}
	b = appendStrs(b, t.ExplicitCodes)
	b = appendUint(b, t.ImplicitAfter)
	b = appendUint(b, t.ImplicitAttempts)
	b = appendUint(b, t.StallTimeout)
	b = appendBool(b, t.AutoDemote)
	b = appendUint(b, t.SkipEmptyAfter)
	b = appendUint(b, t.ReelectMinInterval)
	b = appendUint(b, t.MinAdvanceInterval)
	b = appendUint(b, t.Retention)
	return appendBool(b, t.KeepRemoved)
}

func (t *TrackConfig) read(c *cursor) {
	t.Source = TrackSource(c.uint8("config.source"))
	t.DelayFrom = DelayFrom(c.uint8("config.delay from"))
	t.Locations = list(c, "config.locations", 6, (*LocationConfig).read)
	t.ExplicitCodes = c.strs("config.explicit codes")
	t.ImplicitAfter = c.uint("config.implicit after")
	t.ImplicitAttempts = c.uint("config.implicit attempts")
	t.StallTimeout = c.uint("config.stall timeout")
	t.AutoDemote = c.bool("config.auto demote")
	t.SkipEmptyAfter = c.uint("config.skip empty after")
	t.ReelectMinInterval = c.uint("config.reelect min interval")
	t.MinAdvanceInterval = c.uint("config.min advance interval")
	t.Retention = c.uint("config.retention")
	t.KeepRemoved = c.bool("config.keep removed")
}

func (l *LocationConfig) append(b []byte) []byte {
	b = appendArray(b, 6)
	b = appendStr(b, l.Name)
	b = appendUint(b, l.Delay)
	b = appendUint(b, l.Bake)
	b = appendUint(b, uint64(l.Share))
	b = appendUint(b, l.ShareBake)
	b = appendArray(b, len(l.Gates))
	for i := range l.Gates {
		b = l.Gates[i].append(b)
	}
	return b
}

func (l *LocationConfig) read(c *cursor) {
	l.Name = c.str("locations.name")
	l.Delay = c.uint("locations.delay")
	l.Bake = c.uint("locations.bake")
	l.Share = c.uint8("locations.share")
	l.ShareBake = c.uint("locations.share bake")
	l.Gates = list(c, "locations.gates", 5, (*GateConfig).read)
}

func (g *GateConfig) append(b []byte) []byte {
	b = appendArray(b, 5)
	b = appendStr(b, g.Name)
	b = appendUint(b, uint64(g.Kind))
	b = appendStr(b, g.Spec)
	b = appendUint(b, g.Timeout)
	return appendUint(b, g.Retry)
}

func (g *GateConfig) read(c *cursor) {
	g.Name = c.str("gate.name")
	g.Kind = GateKind(c.uint8("gate.kind"))
	g.Spec = c.str("gate.spec")
	g.Timeout = c.uint("gate.timeout")
	g.Retry = c.uint("gate.retry")
}

func (m *TrackCreate) AppendBody(b []byte) []byte {
	b = m.Head.append(appendArray(b, 5))
	b = appendBin(b, m.Name)
	return m.Config.append(b)
}

func (m *TrackCreate) DecodeBody(body []byte) error {
	c := openBody(body, "track create")
	m.Head.read(&c)
	m.Name = c.bytes("name")
	outer := c.enter("config")
	m.Config.read(&c)
	c.leave(outer)
	return c.end()
}

func (m *TrackAlter) AppendBody(b []byte) []byte {
	b = m.Head.append(appendArray(b, 6))
	b = appendBin(b, m.Name)
	b = appendUint(b, m.Revision)
	return m.Config.append(b)
}

func (m *TrackAlter) DecodeBody(body []byte) error {
	c := openBody(body, "track alter")
	m.Head.read(&c)
	m.Name = c.bytes("name")
	m.Revision = c.uint("revision")
	outer := c.enter("config")
	m.Config.read(&c)
	c.leave(outer)
	return c.end()
}

func (m *TrackRevision) AppendBody(b []byte) []byte {
	b = appendArray(b, 1)
	return appendUint(b, m.Revision)
}

func (m *TrackRevision) DecodeBody(body []byte) error {
	c := openBody(body, "track revision")
	m.Revision = c.uint("revision")
	return c.end()
}

func (m *TrackDelete) AppendBody(b []byte) []byte {
	b = m.Head.append(appendArray(b, 5))
	b = appendBin(b, m.Name)
	return appendBool(b, m.Force)
}

func (m *TrackDelete) DecodeBody(body []byte) error {
	c := openBody(body, "track delete")
	m.Head.read(&c)
	m.Name = c.bytes("name")
	m.Force = c.bool("force")
	return c.end()
}

func (m *TrackRegister) AppendBody(b []byte) []byte {
	b = m.Head.append(appendArray(b, 9))
	b = appendBin(b, m.Name)
	b = appendStr(b, m.ID)
	b = appendStr(b, m.Location)
	b = appendUint(b, uint64(m.Role))
	b = appendStr(b, m.Meta)
	return appendBool(b, m.Takeover)
}

func (m *TrackRegister) DecodeBody(body []byte) error {
	c := openBody(body, "track register")
	m.Head.read(&c)
	m.Name = c.bytes("name")
	m.ID = c.str("id")
	m.Location = c.str("location")
	m.Role = TrackInstanceRole(c.uint8("role"))
	m.Meta = c.str("meta")
	m.Takeover = c.bool("takeover")
	return c.end()
}

func (m *TrackRegisterReply) AppendBody(b []byte) []byte {
	b = appendArray(b, 1)
	return appendUint(b, m.Incarnation)
}

func (m *TrackRegisterReply) DecodeBody(body []byte) error {
	c := openBody(body, "track register reply")
	m.Incarnation = c.uint("incarnation")
	return c.end()
}

func (m *TrackUnregister) AppendBody(b []byte) []byte {
	b = m.Head.append(appendArray(b, 6))
	b = appendBin(b, m.Name)
	b = appendStr(b, m.ID)
	return appendUint(b, m.Incarnation)
}

func (m *TrackUnregister) DecodeBody(body []byte) error {
	c := openBody(body, "track unregister")
	m.Head.read(&c)
	m.Name = c.bytes("name")
	m.ID = c.str("id")
	m.Incarnation = c.uint("incarnation")
	return c.end()
}

func (m *TrackPoll) AppendBody(b []byte) []byte {
	b = appendArray(b, 6)
	b = appendUint(b, m.Session)
	b = appendBin(b, m.Name)
	b = appendStr(b, m.ID)
	b = appendUint(b, m.Incarnation)
	b = m.Report.append(b)
	return appendBool(b, m.WithPayload)
}

func (m *TrackPoll) DecodeBody(body []byte) error {
	c := openBody(body, "track poll")
	m.Session = c.uint("session")
	m.Name = c.bytes("name")
	m.ID = c.str("id")
	m.Incarnation = c.uint("incarnation")
	outer := c.enter("report")
	m.Report.read(&c)
	c.leave(outer)
	m.WithPayload = c.bool("with payload")
	return c.end()
}

func (r *UpdateReport) append(b []byte) []byte {
	b = appendArray(b, 6)
	b = appendUint(b, r.Seq)
	b = appendUint(b, r.Current)
	b = appendUint(b, r.Target)
	b = appendStr(b, r.Code)
	b = appendStr(b, r.Message)
	return appendUint(b, r.Attempts)
}

func (r *UpdateReport) read(c *cursor) {
	r.Seq = c.uint("report.seq")
	r.Current = c.uint("report.current")
	r.Target = c.uint("report.target")
	r.Code = c.str("report.code")
	r.Message = c.str("report.message")
	r.Attempts = c.uint("report.attempts")
}

func (m *TrackPollReply) AppendBody(b []byte) []byte {
	b = appendArray(b, 8)
	b = appendUint(b, m.Version)
	b = appendUint(b, uint64(m.Status))
	b = appendUint(b, uint64(m.State))
	b = appendUint(b, m.Until)
	b = appendUint(b, m.RetryAfter)
	b = appendUint(b, m.Generation)
	b = appendBool(b, m.HasPayload)
	return appendBin(b, m.Payload)
}

func (m *TrackPollReply) DecodeBody(body []byte) error {
	c := openBody(body, "track poll reply")
	m.Version = c.uint("version")
	m.Status = TrackPollStatus(c.uint8("why"))
	m.State = TrackState(c.uint8("state"))
	m.Until = c.uint("until")
	m.RetryAfter = c.uint("retry after")
	m.Generation = c.uint("generation")
	m.HasPayload = c.bool("has payload")
	m.Payload = c.bytes("payload")
	return c.end()
}

func (m *TrackReport) AppendBody(b []byte) []byte {
	b = appendArray(b, 5)
	b = appendUint(b, m.Session)
	b = appendBin(b, m.Name)
	b = appendStr(b, m.ID)
	b = appendUint(b, m.Incarnation)
	return m.Report.append(b)
}

func (m *TrackReport) DecodeBody(body []byte) error {
	c := openBody(body, "track report")
	m.Session = c.uint("session")
	m.Name = c.bytes("name")
	m.ID = c.str("id")
	m.Incarnation = c.uint("incarnation")
	outer := c.enter("report")
	m.Report.read(&c)
	c.leave(outer)
	return c.end()
}

func (m *TrackSetRole) AppendBody(b []byte) []byte {
	b = m.Head.append(appendArray(b, 7))
	b = appendBin(b, m.Name)
	b = appendStr(b, m.ID)
	b = appendUint(b, m.Incarnation)
	return appendUint(b, uint64(m.Role))
}

func (m *TrackSetRole) DecodeBody(body []byte) error {
	c := openBody(body, "track role")
	m.Head.read(&c)
	m.Name = c.bytes("name")
	m.ID = c.str("id")
	m.Incarnation = c.uint("incarnation")
	m.Role = TrackInstanceRole(c.uint8("role"))
	return c.end()
}

func (m *TrackPublish) AppendBody(b []byte) []byte {
	b = m.Head.append(appendArray(b, 6))
	b = appendBin(b, m.Name)
	b = appendUint(b, m.Version)
	return appendBin(b, m.Payload)
}

func (m *TrackPublish) DecodeBody(body []byte) error {
	c := openBody(body, "track publish")
	m.Head.read(&c)
	m.Name = c.bytes("name")
	m.Version = c.uint("version")
	m.Payload = c.bytes("payload")
	return c.end()
}

func (m *TrackVersion) AppendBody(b []byte) []byte {
	b = appendArray(b, 1)
	return appendUint(b, m.Version)
}

func (m *TrackVersion) DecodeBody(body []byte) error {
	c := openBody(body, "track version")
	m.Version = c.uint("version")
	return c.end()
}

func (m *TrackWithdraw) AppendBody(b []byte) []byte {
	b = m.Head.append(appendArray(b, 5))
	b = appendBin(b, m.Name)
	return appendUint(b, m.Version)
}

func (m *TrackWithdraw) DecodeBody(body []byte) error {
	c := openBody(body, "track withdraw")
	m.Head.read(&c)
	m.Name = c.bytes("name")
	m.Version = c.uint("version")
	return c.end()
}

func (m *TrackAdmin) AppendBody(b []byte) []byte {
	b = m.Head.append(appendArray(b, 9))
	b = appendBin(b, m.Name)
	b = appendUint(b, uint64(m.Verb))
	b = appendStrs(b, m.Locations)
	b = appendUint(b, m.Version)
	b = appendStr(b, m.ID)
	return appendBool(b, m.Hard)
}

func (m *TrackAdmin) DecodeBody(body []byte) error {
	c := openBody(body, "track admin")
	m.Head.read(&c)
	m.Name = c.bytes("name")
	m.Verb = TrackVerb(c.uint8("verb"))
	m.Locations = c.strs("locations")
	m.Version = c.uint("version")
	m.ID = c.str("id")
	m.Hard = c.bool("hard")
	return c.end()
}

func (m *TrackAdvance) AppendBody(b []byte) []byte {
	b = m.Head.append(appendArray(b, 7))
	b = appendBin(b, m.Name)
	b = appendUint(b, m.Expected)
	b = appendUint(b, m.Version)
	return appendStr(b, m.Text)
}

func (m *TrackAdvance) DecodeBody(body []byte) error {
	c := openBody(body, "track advance")
	m.Head.read(&c)
	m.Name = c.bytes("name")
	m.Expected = c.uint("expected")
	m.Version = c.uint("version")
	m.Text = c.str("text")
	return c.end()
}

func (m *TrackGateReport) AppendBody(b []byte) []byte {
	b = m.Head.append(appendArray(b, 10))
	b = appendBin(b, m.Name)
	b = appendStr(b, m.Location)
	b = appendUint(b, m.Version)
	b = appendStr(b, m.Gate)
	b = appendUint(b, m.Attempt)
	b = appendUint(b, uint64(m.Outcome))
	return appendStr(b, m.Text)
}

func (m *TrackGateReport) DecodeBody(body []byte) error {
	c := openBody(body, "track gate")
	m.Head.read(&c)
	m.Name = c.bytes("name")
	m.Location = c.str("location")
	m.Version = c.uint("version")
	m.Gate = c.str("gate")
	m.Attempt = c.uint("attempt")
	m.Outcome = GateOutcome(c.uint8("outcome"))
	m.Text = c.str("text")
	return c.end()
}
