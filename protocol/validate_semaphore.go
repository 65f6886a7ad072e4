package protocol

// validate checks the head of a request. Low may be anything: an acquire that was accepted is sent again with a Low above its own number.
func (h *Head) validate() error {
	if h.Seq == 0 {
		return Errorf(StatusBadRequest, "sequence number is 0; a session's requests are numbered from 1")
	}
	return nil
}

// Validate checks name, limit and data.
func (m *Create) Validate() error {
	if err := validateName(m.Name); err != nil {
		return err
	}
	if err := validateLimit(m.Limit); err != nil {
		return err
	}
	if err := validateData(m.Data); err != nil {
		return err
	}
	return m.Head.validate()
}

// Validate checks name and data.
func (m *Update) Validate() error {
	if err := validateName(m.Name); err != nil {
		return err
	}
	if err := validateData(m.Data); err != nil {
		return err
	}
	return m.Head.validate()
}

// Validate checks name and limit.
func (m *Resize) Validate() error {
	if err := validateName(m.Name); err != nil {
		return err
	}
	if err := validateLimit(m.Limit); err != nil {
		return err
	}
	return m.Head.validate()
}

// Validate checks the name.
func (m *Delete) Validate() error {
	if err := validateName(m.Name); err != nil {
		return err
	}
	return m.Head.validate()
}

// Validate checks name, then count 0, timeout and data, in this order.
func (m *Acquire) Validate() error {
	if err := validateName(m.Name); err != nil {
		return err
	}
	if m.Count == 0 {
		return Errorf(StatusBadRequest, "acquire count is 0; it must be 1 up to the semaphore's limit")
	}
	if m.Timeout != Forever {
		if err := validateMillis("acquire timeout", m.Timeout, 0, MaxAcquireTimeout); err != nil {
			return err
		}
	}
	if err := validateData(m.Data); err != nil {
		return err
	}
	return m.Head.validate()
}

// Validate checks the name.
func (m *Release) Validate() error {
	if err := validateName(m.Name); err != nil {
		return err
	}
	return m.Head.validate()
}

// Validate checks name, order ids and reason, which must be given.
func (m *ForceRelease) Validate() error {
	if err := validateName(m.Name); err != nil {
		return err
	}
	if m.First == 0 || m.First > m.Last {
		return Errorf(StatusBadRequest, "order ids %d to %d are none; give the token of the lease as first and last, and tokens begin at 1", m.First, m.Last)
	}
	return validateReason(m.Reason)
}

// validateReason checks the reason of an operator's act against somebody who works.
func validateReason(reason string) error {
	for _, r := range reason {
		if r > ' ' {
			return validateText("reason", reason)
		}
	}
	return Errorf(StatusBadRequest, "reason is empty; say why, for those whom it hits and for the records")
}

// Validate checks name, flags and consistency. A watch needs a session.
func (m *Describe) Validate() error {
	if err := validateName(m.Name); err != nil {
		return err
	}
	if unknown := m.Flags &^ (WithOwners | WithWaiters | WatchData | WatchOwners); unknown != 0 {
		return Errorf(StatusBadRequest, "describe has unknown flags (bits %#x); leave them out, or upgrade the server first", unknown)
	}
	if m.Flags&(WatchData|WatchOwners) != 0 && m.Session == 0 {
		return Errorf(StatusBadRequest, "describe asks for a watch without a session; name the session that watches")
	}
	return validateConsistency(m.Consistency)
}

// Validate checks prefix and consistency.
func (m *List) Validate() error {
	if err := validatePrefix(m.Prefix); err != nil {
		return err
	}
	return validateConsistency(m.Consistency)
}

// Validate checks the name, which may be empty for a prefix only.
func (m *Watch) Validate() error {
	if m.Prefix {
		return validatePrefix(m.Name)
	}
	return validateName(m.Name)
}

// Validate has nothing to check.
func (m *Unwatch) Validate() error { return nil }
