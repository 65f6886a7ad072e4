package protocol

func (m *TrackDescribe) AppendBody(b []byte) []byte {
	b = appendArray(b, 7)
	b = appendUint(b, m.Node)
	b = appendBin(b, m.Name)
	b = appendUint(b, uint64(m.Flags))
	b = appendUint(b, uint64(m.Consistency))
	b = appendUint(b, m.MinIndex)
	b = appendBin(b, m.Cursor)
	return appendUint(b, uint64(m.Limit))
}

func (m *TrackDescribe) DecodeBody(body []byte) error {
	c := openBody(body, "track describe")
	m.Node = c.uint("node")
	m.Name = c.bytes("name")
	m.Flags = c.uint8("flags")
	m.Consistency = Consistency(c.uint8("consistency"))
	m.MinIndex = c.uint("min index")
	m.Cursor = c.bytes("cursor")
	m.Limit = c.uint32("limit")
	return c.end()
}

func (m *TrackStatus) AppendBody(b []byte) []byte {
	b = appendArray(b, 14)
	b = appendUint(b, m.Index)
	b = appendUint(b, m.Revision)
	b = appendUint(b, m.ConfigRevision)
	b = appendBin(b, m.Name)
	b = appendUint(b, m.Clock)
	b = appendUint(b, m.Last)
	b = appendBool(b, m.Paused)
	b = appendStr(b, m.SourceError)
	b = appendUint(b, m.NumInstances)
	b = m.Config.append(b)
	b = appendArray(b, len(m.Locations))
	for i := range m.Locations {
		b = m.Locations[i].append(b)
	}
	b = appendArray(b, len(m.Gates))
	for i := range m.Gates {
		b = m.Gates[i].append(b)
	}
	b = appendArray(b, len(m.Instances))
	for i := range m.Instances {
		b = m.Instances[i].append(b)
	}
	return appendBin(b, m.Cursor)
}

func (m *TrackStatus) DecodeBody(body []byte) error {
	c := openBody(body, "track status")
	m.Index = c.uint("index")
	m.Revision = c.uint("revision")
	m.ConfigRevision = c.uint("config revision")
	m.Name = c.bytes("name")
	m.Clock = c.uint("clock")
	m.Last = c.uint("last")
	m.Paused = c.bool("paused")
	m.SourceError = c.str("source error")
	m.NumInstances = c.uint("num instances")
	outer := c.enter("config")
	m.Config.read(&c)
	c.leave(outer)
	m.Locations = list(&c, "locations", 19, (*TrackLocationStatus).read)
	m.Gates = list(&c, "gates", 5, (*GateRun).read)
	m.Instances = list(&c, "instances", 18, (*TrackInstanceStatus).read)
	m.Cursor = c.bytes("cursor")
	return c.end()
}

func (l *TrackLocationStatus) append(b []byte) []byte {
	b = appendArray(b, 19)
	b = appendStr(b, l.Name)
	b = appendUint(b, uint64(l.State))
	b = appendUint(b, l.Until)
	b = appendUint(b, l.Target)
	b = appendUint(b, l.Stable)
	b = appendUint(b, l.Since)
	b = appendUint(b, l.Generation)
	b = appendUint(b, uint64(l.Reason))
	b = appendUint(b, l.Members)
	b = appendUint(b, l.Leaders)
	b = appendUint(b, l.Counted)
	b = appendUint(b, l.Reached)
	b = appendStrs(b, l.BlockedBy)
	b = appendUint(b, l.BlockedSince)
	b = appendBool(b, l.Paused)
	b = appendBool(b, l.Excluded)
	b = appendBool(b, l.Rollback)
	b = appendStr(b, l.Gate)
	return appendUint(b, l.GateVersion)
}

func (l *TrackLocationStatus) read(c *cursor) {
	l.Name = c.str("locations.name")
	l.State = TrackState(c.uint8("locations.state"))
	l.Until = c.uint("locations.until")
	l.Target = c.uint("locations.target")
	l.Stable = c.uint("locations.stable")
	l.Since = c.uint("locations.since")
	l.Generation = c.uint("locations.generation")
	l.Reason = TrackReason(c.uint8("locations.reason"))
	l.Members = c.uint("locations.members")
	l.Leaders = c.uint("locations.leaders")
	l.Counted = c.uint("locations.counted")
	l.Reached = c.uint("locations.reached")
	l.BlockedBy = c.strs("locations.blocked by")
	l.BlockedSince = c.uint("locations.blocked since")
	l.Paused = c.bool("locations.paused")
	l.Excluded = c.bool("locations.excluded")
	l.Rollback = c.bool("locations.rollback")
	l.Gate = c.str("locations.gate")
	l.GateVersion = c.uint("locations.gate version")
}

func (g *GateRun) append(b []byte) []byte {
	b = appendArray(b, 5)
	b = appendStr(b, g.Location)
	b = appendUint(b, g.Version)
	b = appendUint(b, g.Attempt)
	b = appendUint(b, g.Deadline)
	return g.Gate.append(b)
}

func (g *GateRun) read(c *cursor) {
	g.Location = c.str("gates.location")
	g.Version = c.uint("gates.version")
	g.Attempt = c.uint("gates.attempt")
	g.Deadline = c.uint("gates.deadline")
	outer := c.enter("gates.gate")
	g.Gate.read(c)
	c.leave(outer)
}

func (s *TrackInstanceStatus) append(b []byte) []byte {
	b = appendArray(b, 18)
	b = appendStr(b, s.ID)
	b = appendStr(b, s.Location)
	b = appendStr(b, s.Meta)
	b = appendUint(b, s.Session)
	b = appendUint(b, s.Incarnation)
	b = appendUint(b, uint64(s.Role))
	b = appendBool(b, s.Demoted)
	b = appendBool(b, s.InShare)
	b = appendUint(b, s.Due)
	b = appendUint(b, s.Sent)
	b = appendUint(b, s.SentAt)
	b = appendUint(b, s.Registered)
	b = appendUint(b, s.ReportAt)
	b = s.Report.append(b)
	b = appendBool(b, s.Reached)
	b = appendBool(b, s.HoldsUp)
	b = appendBool(b, s.SaysBad)
	return appendBool(b, s.CannotLoad)
}

func (s *TrackInstanceStatus) read(c *cursor) {
	s.ID = c.str("instances.id")
	s.Location = c.str("instances.location")
	s.Meta = c.str("instances.meta")
	s.Session = c.uint("instances.session")
	s.Incarnation = c.uint("instances.incarnation")
	s.Role = TrackInstanceRole(c.uint8("instances.role"))
	s.Demoted = c.bool("instances.demoted")
	s.InShare = c.bool("instances.in share")
	s.Due = c.uint("instances.due")
	s.Sent = c.uint("instances.sent")
	s.SentAt = c.uint("instances.sent at")
	s.Registered = c.uint("instances.registered")
	s.ReportAt = c.uint("instances.report at")
	outer := c.enter("instances.report")
	s.Report.read(c)
	c.leave(outer)
	s.Reached = c.bool("instances.reached")
	s.HoldsUp = c.bool("instances.holds up")
	s.SaysBad = c.bool("instances.says bad")
	s.CannotLoad = c.bool("instances.cannot load")
}

func (m *TrackHistory) AppendBody(b []byte) []byte {
	b = appendArray(b, 5)
	b = appendUint(b, m.Node)
	b = appendBin(b, m.Name)
	b = appendStr(b, m.Location)
	b = appendUint(b, uint64(m.Consistency))
	return appendUint(b, m.MinIndex)
}

func (m *TrackHistory) DecodeBody(body []byte) error {
	c := openBody(body, "track history")
	m.Node = c.uint("node")
	m.Name = c.bytes("name")
	m.Location = c.str("location")
	m.Consistency = Consistency(c.uint8("consistency"))
	m.MinIndex = c.uint("min index")
	return c.end()
}

func (m *TrackHistoryReply) AppendBody(b []byte) []byte {
	b = appendArray(b, 3)
	b = appendUint(b, m.Index)
	b = appendUint(b, m.Clock)
	b = appendArray(b, len(m.Rows))
	for i := range m.Rows {
		b = m.Rows[i].append(b)
	}
	return b
}

func (m *TrackHistoryReply) DecodeBody(body []byte) error {
	c := openBody(body, "track history reply")
	m.Index = c.uint("index")
	m.Clock = c.uint("clock")
	m.Rows = list(&c, "rows", 6, (*TrackHistoryRow).read)
	return c.end()
}

func (r *TrackHistoryRow) append(b []byte) []byte {
	b = appendArray(b, 6)
	b = appendUint(b, r.Version)
	b = appendUint(b, r.At)
	b = appendUint(b, r.Wall)
	b = appendUint(b, r.Converged)
	b = appendUint(b, uint64(r.Reason))
	return appendBool(b, r.Skip)
}

func (r *TrackHistoryRow) read(c *cursor) {
	r.Version = c.uint("rows.version")
	r.At = c.uint("rows.at")
	r.Wall = c.uint("rows.wall")
	r.Converged = c.uint("rows.converged")
	r.Reason = TrackReason(c.uint8("rows.reason"))
	r.Skip = c.bool("rows.skip")
}

func (m *TrackList) AppendBody(b []byte) []byte {
	b = appendArray(b, 7)
	b = appendUint(b, m.Shard)
	b = appendUint(b, m.Node)
	b = appendBin(b, m.Prefix)
	b = appendBin(b, m.Cursor)
	b = appendUint(b, uint64(m.Limit))
	b = appendUint(b, uint64(m.Consistency))
	return appendUint(b, m.MinIndex)
}

func (m *TrackList) DecodeBody(body []byte) error {
	c := openBody(body, "track list")
	m.Shard = c.uint("shard")
	m.Node = c.uint("node")
	m.Prefix = c.bytes("prefix")
	m.Cursor = c.bytes("cursor")
	m.Limit = c.uint32("limit")
	m.Consistency = Consistency(c.uint8("consistency"))
	m.MinIndex = c.uint("min index")
	return c.end()
}

func (m *TrackListReply) AppendBody(b []byte) []byte {
	b = appendArray(b, 3)
	b = appendUint(b, m.Index)
	b = appendArray(b, len(m.Tracks))
	for i := range m.Tracks {
		b = m.Tracks[i].append(b)
	}
	return appendBin(b, m.Cursor)
}

func (m *TrackListReply) DecodeBody(body []byte) error {
	c := openBody(body, "track list reply")
	m.Index = c.uint("index")
	m.Tracks = list(&c, "tracks", 5, (*TrackItem).read)
	m.Cursor = c.bytes("cursor")
	return c.end()
}

func (t *TrackItem) append(b []byte) []byte {
	b = appendArray(b, 5)
	b = appendBin(b, t.Name)
	b = appendUint(b, t.Last)
	b = appendUint(b, t.NumLocations)
	b = appendUint(b, t.NumInstances)
	return appendBool(b, t.Paused)
}

func (t *TrackItem) read(c *cursor) {
	t.Name = c.bytes("tracks.name")
	t.Last = c.uint("tracks.last")
	t.NumLocations = c.uint("tracks.num locations")
	t.NumInstances = c.uint("tracks.num instances")
	t.Paused = c.bool("tracks.paused")
}

func (m *TrackWatch) AppendBody(b []byte) []byte {
	b = appendArray(b, 4)
	b = appendUint(b, m.Node)
	b = appendBin(b, m.Name)
	b = appendStr(b, m.Location)
	return appendBool(b, m.Targets)
}

func (m *TrackWatch) DecodeBody(body []byte) error {
	c := openBody(body, "track watch")
	m.Node = c.uint("node")
	m.Name = c.bytes("name")
	m.Location = c.str("location")
	m.Targets = c.bool("targets")
	return c.end()
}

func (m *TrackEvents) AppendBody(b []byte) []byte {
	b = appendArray(b, 2)
	b = appendUint(b, m.Revision)
	b = appendArray(b, len(m.Events))
	for i := range m.Events {
		b = m.Events[i].append(b)
	}
	return b
}

func (m *TrackEvents) DecodeBody(body []byte) error {
	c := openBody(body, "track change")
	m.Revision = c.uint("revision")
	m.Events = list(&c, "events", 15, (*TrackEvent).read)
	return c.end()
}

func (e *TrackEvent) append(b []byte) []byte {
	b = appendArray(b, 15)
	b = appendUint(b, uint64(e.Kind))
	b = appendUint(b, uint64(e.Reason))
	b = appendUint(b, uint64(e.State))
	b = appendBool(b, e.Share)
	b = appendStr(b, e.Location)
	b = appendStr(b, e.Instance)
	b = appendStr(b, e.Gate)
	b = appendUint(b, e.Version)
	b = appendUint(b, e.From)
	b = appendUint(b, e.Generation)
	b = appendUint(b, e.Until)
	b = appendUint(b, e.Attempt)
	b = appendUint(b, e.Log)
	b = appendUint(b, e.Wall)
	return appendStr(b, e.Text)
}

func (e *TrackEvent) read(c *cursor) {
	e.Kind = TrackEventKind(c.uint8("events.kind"))
	e.Reason = TrackReason(c.uint8("events.reason"))
	e.State = TrackState(c.uint8("events.state"))
	e.Share = c.bool("events.share")
	e.Location = c.str("events.location")
	e.Instance = c.str("events.instance")
	e.Gate = c.str("events.gate")
	e.Version = c.uint("events.version")
	e.From = c.uint("events.from")
	e.Generation = c.uint("events.generation")
	e.Until = c.uint("events.until")
	e.Attempt = c.uint("events.attempt")
	e.Log = c.uint("events.log")
	e.Wall = c.uint("events.wall")
	e.Text = c.str("events.text")
}
