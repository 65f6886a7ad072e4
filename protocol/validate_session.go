package protocol

// Validate checks create id, key, timeout, description and nonce.
func (m *SessionStart) Validate() error {
	if len(m.CreateID) != KeyLen {
		return Errorf(StatusBadRequest, "create id is %d bytes long; it must be %d random bytes", len(m.CreateID), KeyLen)
	}
	return validateSession(m.Key, m.Timeout, m.Description, m.Nonce)
}

// Validate checks key, timeout, description and nonce. Ids and epochs are for the session's home to judge.
func (m *SessionAttach) Validate() error {
	return validateSession(m.Key, m.Timeout, m.Description, m.Nonce)
}

func validateSession(key []byte, timeout uint64, description string, nonce uint64) error {
	if len(key) != KeyLen {
		return Errorf(StatusBadRequest, "session key is %d bytes long; it must be the %d random bytes the session was started with", len(key), KeyLen)
	}
	if err := validateMillis("session timeout", timeout, 0, MaxSessionTimeout); err != nil {
		return err
	}
	if nonce == 0 {
		return Errorf(StatusBadRequest, "session nonce is 0; it must be a random number that this holder of the session has to itself")
	}
	return validateText("session description", description)
}

// Validate has nothing to check: an unknown session is SESSION_EXPIRED at its home.
func (m *SessionStop) Validate() error { return nil }

// Validate checks the reason, which must be given.
func (m *SessionKill) Validate() error { return validateReason(m.Reason) }

// Validate has nothing to check.
func (m *SessionDescribe) Validate() error { return nil }

// Validate has nothing to check.
func (m *SessionList) Validate() error { return nil }
