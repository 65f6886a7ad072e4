package protocol

import "unicode/utf8"

// validateTrack checks the name of a track and, for a change, the number of the request.
func validateTrack(name []byte, h *Head) error {
	if len(name) == 0 || len(name) > MaxNameLen {
		return Errorf(StatusBadRequest, "track name is %d bytes long; it must be 1 to %d, as in service/cluster", len(name), MaxNameLen)
	}
	if h == nil {
		return nil
	}
	return h.validate()
}

// validateTrackText checks printable text of a track, which may be empty.
func validateTrackText(field, text string, most int) error {
	if len(text) > most {
		return Errorf(StatusBadRequest, "%s is %d bytes long; at most %d are allowed", field, len(text), most)
	}
	if !utf8.ValidString(text) {
		return Errorf(StatusBadRequest, "%s is not valid UTF-8; it is text for people", field)
	}
	for i := range len(text) {
		if text[i] < ' ' || text[i] == 0x7f {
			return Errorf(StatusBadRequest, "%s has control characters; leave them out", field)
		}
	}
	return nil
}

// validateTrackName checks printable text of a track that must be there.
func validateTrackName(field, text string, most int) error {
	if text == "" {
		return Errorf(StatusBadRequest, "%s is empty; it must be 1 to %d bytes long", field, most)
	}
	return validateTrackText(field, text, most)
}

func validateTrackVersion(version uint64) error {
	if version > MaxTrackVersion {
		return Errorf(StatusBadRequest, "version is %d; at most 2^63-1 is allowed", version)
	}
	return nil
}

func validateTrackInstance(id string, incarnation uint64) error {
	if err := validateTrackName("instance id", id, MaxTrackInstance); err != nil {
		return err
	}
	if incarnation == 0 {
		return Errorf(StatusBadRequest, "incarnation is 0; give the one that the registration answered")
	}
	return nil
}

func validateRole(r TrackInstanceRole) error {
	if r != InstanceFollower && r != InstanceLeader {
		return Errorf(StatusBadRequest, "role is %d; it must be 1 (follower) or 2 (leader)", r)
	}
	return nil
}

func (t *TrackConfig) validate() error {
	if t.Source < SourceTSO || t.Source > SourcePublished {
		return Errorf(StatusBadRequest, "source is %d; it must be 1 (tso), 2 (external) or 3 (published)", t.Source)
	}
	if t.DelayFrom > FromConverged {
		return Errorf(StatusBadRequest, "delay from is %d; it must be 0 (selected) or 1 (converged)", t.DelayFrom)
	}
	if len(t.Locations) == 0 || len(t.Locations) > MaxTrackLocations {
		return Errorf(StatusBadRequest, "config has %d locations; it must have 1 to %d", len(t.Locations), MaxTrackLocations)
	}
	if len(t.ExplicitCodes) > MaxTrackCodes {
		return Errorf(StatusBadRequest, "config has %d explicit codes; at most %d are allowed", len(t.ExplicitCodes), MaxTrackCodes)
	}
	for _, code := range t.ExplicitCodes {
		if err := validateTrackName("explicit code", code, MaxTrackName); err != nil {
			return err
		}
	}
	for i := range t.Locations {
		if err := t.Locations[i].validate(); err != nil {
			return err
		}
	}
	if t.ImplicitAttempts > MaxTrackDuration {
		return Errorf(StatusBadRequest, "config: implicit attempts is %d; at most 2^32 are allowed", t.ImplicitAttempts)
	}
	return validateTrackTimes("config", trackTime{"implicit after", t.ImplicitAfter}, trackTime{"stall timeout", t.StallTimeout},
		trackTime{"skip empty after", t.SkipEmptyAfter}, trackTime{"reelect interval", t.ReelectMinInterval},
		trackTime{"advance interval", t.MinAdvanceInterval}, trackTime{"retention", t.Retention})
}

func (l *LocationConfig) validate() error {
	if err := validateTrackName("location name", l.Name, MaxTrackName); err != nil {
		return err
	}
	if l.Share > 100 {
		return Errorf(StatusBadRequest, "location %s: share is %d; it is in percent, 0 to 100", l.Name, l.Share)
	}
	if len(l.Gates) > MaxTrackGates {
		return Errorf(StatusBadRequest, "location %s has %d gates; at most %d are allowed", l.Name, len(l.Gates), MaxTrackGates)
	}
	for i := range l.Gates {
		if err := l.Gates[i].validate(); err != nil {
			return err
		}
	}
	return validateTrackTimes("location "+l.Name, trackTime{"delay", l.Delay}, trackTime{"bake", l.Bake}, trackTime{"share bake", l.ShareBake})
}

func (g *GateConfig) validate() error {
	if err := validateTrackName("gate name", g.Name, MaxTrackName); err != nil {
		return err
	}
	if g.Kind != GateCommand && g.Kind != GateWebhook {
		return Errorf(StatusBadRequest, "gate %s: kind is %d; it must be 1 (command) or 2 (webhook)", g.Name, g.Kind)
	}
	if len(g.Spec) > MaxTrackGateSpec || !utf8.ValidString(g.Spec) {
		return Errorf(StatusBadRequest, "gate %s: its command or address is at most %d bytes of UTF-8", g.Name, MaxTrackGateSpec)
	}
	return validateTrackTimes("gate "+g.Name, trackTime{"timeout", g.Timeout}, trackTime{"retry", g.Retry})
}

// trackTime is a time of a track's config, and what it is called.
type trackTime struct {
	field string
	ms    uint64
}

func validateTrackTimes(part string, list ...trackTime) error {
	for _, t := range list {
		if err := validateMillis(part+": "+t.field, t.ms, 0, MaxTrackDuration); err != nil {
			return err
		}
	}
	return nil
}

func (r *UpdateReport) validate() error {
	if r.Current > MaxTrackVersion || r.Target > MaxTrackVersion {
		return Errorf(StatusBadRequest, "report: a version is above 2^63-1")
	}
	if err := validateTrackText("reported code", r.Code, MaxTrackName); err != nil {
		return err
	}
	return validateTrackText("reported message", r.Message, MaxTrackMessage)
}

// Validate checks the name and the bounds of the config. What its parts mean together is for the track to check.
func (m *TrackCreate) Validate() error {
	if err := validateTrack(m.Name, &m.Head); err != nil {
		return err
	}
	return m.Config.validate()
}

// Validate checks as TrackCreate's does.
func (m *TrackAlter) Validate() error {
	if err := validateTrack(m.Name, &m.Head); err != nil {
		return err
	}
	return m.Config.validate()
}

// Validate checks the name.
func (m *TrackDelete) Validate() error { return validateTrack(m.Name, &m.Head) }

// Validate checks names, role and meta.
func (m *TrackRegister) Validate() error {
	if err := validateTrack(m.Name, &m.Head); err != nil {
		return err
	}
	if err := validateTrackName("instance id", m.ID, MaxTrackInstance); err != nil {
		return err
	}
	if err := validateTrackName("location name", m.Location, MaxTrackName); err != nil {
		return err
	}
	if err := validateRole(m.Role); err != nil {
		return err
	}
	return validateTrackText("meta", m.Meta, MaxTrackMeta)
}

// Validate checks name, id and incarnation.
func (m *TrackUnregister) Validate() error {
	if err := validateTrack(m.Name, &m.Head); err != nil {
		return err
	}
	return validateTrackInstance(m.ID, m.Incarnation)
}

// Validate checks name, id, incarnation and report.
func (m *TrackPoll) Validate() error {
	if err := validateTrack(m.Name, nil); err != nil {
		return err
	}
	if err := validateTrackInstance(m.ID, m.Incarnation); err != nil {
		return err
	}
	return m.Report.validate()
}

// Validate checks name, id, incarnation and report, whose number must be given.
func (m *TrackReport) Validate() error {
	if err := validateTrack(m.Name, nil); err != nil {
		return err
	}
	if err := validateTrackInstance(m.ID, m.Incarnation); err != nil {
		return err
	}
	if m.Report.Seq == 0 {
		return Errorf(StatusBadRequest, "report number is 0; an incarnation's reports are numbered from 1")
	}
	return m.Report.validate()
}

// Validate checks name, id, incarnation and role.
func (m *TrackSetRole) Validate() error {
	if err := validateTrack(m.Name, &m.Head); err != nil {
		return err
	}
	if err := validateTrackInstance(m.ID, m.Incarnation); err != nil {
		return err
	}
	return validateRole(m.Role)
}

// Validate checks name, version and payload.
func (m *TrackPublish) Validate() error {
	if err := validateTrack(m.Name, &m.Head); err != nil {
		return err
	}
	if err := validateTrackVersion(m.Version); err != nil {
		return err
	}
	if len(m.Payload) > MaxTrackPayload {
		return Errorf(StatusBadRequest, "payload is %d bytes long; at most %d are allowed: publish where to find it instead", len(m.Payload), MaxTrackPayload)
	}
	return nil
}

// Validate checks name and version.
func (m *TrackWithdraw) Validate() error {
	if err := validateTrack(m.Name, &m.Head); err != nil {
		return err
	}
	return validateTrackVersion(m.Version)
}

// Validate checks the name, and that the verb has what it needs.
func (m *TrackAdmin) Validate() error {
	if err := validateTrack(m.Name, &m.Head); err != nil {
		return err
	}
	if m.Verb < TrackPause || m.Verb > TrackDrop {
		return Errorf(StatusBadRequest, "verb is %d; it must be 1 to %d", m.Verb, TrackDrop)
	}
	if len(m.Locations) > MaxTrackLocations {
		return Errorf(StatusBadRequest, "%d locations are named; at most %d are allowed", len(m.Locations), MaxTrackLocations)
	}
	for _, name := range m.Locations {
		if err := validateTrackName("location name", name, MaxTrackName); err != nil {
			return err
		}
	}
	if m.Verb == TrackDrop {
		return validateTrackName("instance id", m.ID, MaxTrackInstance)
	}
	if len(m.Locations) == 0 && m.Verb != TrackPause && m.Verb != TrackResume {
		return Errorf(StatusBadRequest, "no location is named; name those that are meant")
	}
	return validateTrackVersion(m.Version)
}

// Validate checks names, outcome and text.
func (m *TrackAdvance) Validate() error {
	if err := validateTrack(m.Name, &m.Head); err != nil {
		return err
	}
	if (m.Version == 0) != (m.Text != "") {
		return Errorf(StatusBadRequest, "version is %d with an error of %d bytes; give one of the two", m.Version, len(m.Text))
	}
	if err := validateTrackText("source error", m.Text, MaxTrackMessage); err != nil {
		return err
	}
	if err := validateTrackVersion(m.Expected); err != nil {
		return err
	}
	return validateTrackVersion(m.Version)
}

// Validate checks names, outcome and text.
func (m *TrackGateReport) Validate() error {
	if err := validateTrack(m.Name, &m.Head); err != nil {
		return err
	}
	if err := validateTrackName("location name", m.Location, MaxTrackName); err != nil {
		return err
	}
	if err := validateTrackName("gate name", m.Gate, MaxTrackName); err != nil {
		return err
	}
	if m.Outcome < GateSuccess || m.Outcome > GateInconclusive {
		return Errorf(StatusBadRequest, "outcome is %d; it must be 1 (success), 2 (failure) or 3 (inconclusive)", m.Outcome)
	}
	if err := validateTrackText("gate text", m.Text, MaxTrackMessage); err != nil {
		return err
	}
	return validateTrackVersion(m.Version)
}

// Validate checks name, flags and consistency.
func (m *TrackDescribe) Validate() error {
	if err := validateTrack(m.Name, nil); err != nil {
		return err
	}
	if unknown := m.Flags &^ (WithTrackConfig | WithTrackInstances); unknown != 0 {
		return Errorf(StatusBadRequest, "track describe has unknown flags (bits %#x); leave them out, or upgrade the server first", unknown)
	}
	return validateConsistency(m.Consistency)
}

// Validate checks names and consistency.
func (m *TrackHistory) Validate() error {
	if err := validateTrack(m.Name, nil); err != nil {
		return err
	}
	if err := validateTrackName("location name", m.Location, MaxTrackName); err != nil {
		return err
	}
	return validateConsistency(m.Consistency)
}

// Validate checks prefix and consistency.
func (m *TrackList) Validate() error {
	if len(m.Prefix) > MaxNameLen {
		return Errorf(StatusBadRequest, "track prefix is %d bytes long; at most %d are allowed", len(m.Prefix), MaxNameLen)
	}
	return validateConsistency(m.Consistency)
}

// Validate checks the names.
func (m *TrackWatch) Validate() error {
	if err := validateTrack(m.Name, nil); err != nil {
		return err
	}
	return validateTrackText("location name", m.Location, MaxTrackName)
}
