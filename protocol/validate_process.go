package protocol

import "unicode/utf8"

// ValidateProcessName checks the name of a coordination process: parts of a-z, A-Z and 0-9, with single dashes or dots between them, at most MaxProcessName bytes.
func ValidateProcessName(name []byte) error {
	if len(name) == 0 || len(name) > MaxProcessName {
		return Errorf(StatusBadRequest, "process name is %d bytes long; it must be 1 to %d", len(name), MaxProcessName)
	}
	inner := false // the byte before was a letter or digit
	for _, c := range name {
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		if !letter && (c != '-' && c != '.' || !inner) {
			inner = false
			break
		}
		inner = letter
	}
	if !inner {
		return Errorf(StatusBadRequest, "process name must be letters and digits, with single dashes or dots between them")
	}
	return nil
}

// validateProcess checks the name of a process, and that the session and the epoch of a member's message are there.
func validateProcess(name []byte, session, epoch uint64) error {
	if err := ValidateProcessName(name); err != nil {
		return err
	}
	if session == 0 {
		return Errorf(StatusBadRequest, "session is 0; name the session that is a member")
	}
	if epoch == 0 {
		return Errorf(StatusBadRequest, "epoch is 0; give the one of the round")
	}
	return nil
}

func validateProcessText(field, text string, most int) error {
	if len(text) > most {
		return Errorf(StatusBadRequest, "%s is %d bytes long; at most %d are allowed", field, len(text), most)
	}
	if !utf8.ValidString(text) {
		return Errorf(StatusBadRequest, "%s is not valid UTF-8; it is text for people", field)
	}
	return nil
}

func (o *ProcessOptions) validate() error {
	if o.Election > ElectPreferred {
		return Errorf(StatusBadRequest, "election is %d; it must be 0 (oldest), 1 (lowest-id) or 2 (preferred)", o.Election)
	}
	for _, t := range []struct {
		field string
		ms    uint64
	}{
		{"debounce", o.Debounce}, {"round timeout", o.RoundTimeout}, {"least back-off", o.BackoffMin}, {"greatest back-off", o.BackoffMax},
		{"time to return", o.Return},
	} {
		if err := validateMillis(t.field, t.ms, 0, MaxProcessDuration); err != nil {
			return err
		}
	}
	if o.BackoffMax > 0 && o.BackoffMin > o.BackoffMax {
		return Errorf(StatusBadRequest, "least back-off is %d ms, above the greatest, %d ms", o.BackoffMin, o.BackoffMax)
	}
	return nil
}

// Validate checks name, key, data and options.
func (m *ProcessJoin) Validate() error {
	if err := ValidateProcessName(m.Name); err != nil {
		return err
	}
	if err := validateProcessText("member key", m.Key, MaxProcessKey); err != nil {
		return err
	}
	if len(m.Data) > MaxProcessData {
		return Errorf(StatusBadRequest, "member data is %d bytes long; at most %d are allowed", len(m.Data), MaxProcessData)
	}
	if err := m.Options.validate(); err != nil {
		return err
	}
	return m.Head.validate()
}

// Validate checks the name.
func (m *ProcessLeave) Validate() error {
	if err := ValidateProcessName(m.Name); err != nil {
		return err
	}
	return m.Head.validate()
}

// Validate checks name, session, epoch and step.
func (m *ProcessConfirm) Validate() error {
	if err := validateProcess(m.Name, m.Session, m.Epoch); err != nil {
		return err
	}
	if m.Step != StepPrepared && m.Step != StepCompleted {
		return Errorf(StatusBadRequest, "step is %d; it must be 1 (prepared) or 2 (completed)", m.Step)
	}
	return nil
}

// Validate checks name, session, epoch and text. The text may be long: it is cut.
func (m *ProcessFail) Validate() error {
	if err := validateProcess(m.Name, m.Session, m.Epoch); err != nil {
		return err
	}
	return validateText("text", m.Text)
}

// Validate checks name, epoch and result.
func (m *ProcessComplete) Validate() error {
	if err := validateProcess(m.Name, m.Session, m.Epoch); err != nil {
		return err
	}
	if len(m.Result) > MaxProcessResult {
		return Errorf(StatusBadRequest, "result is %d bytes long; at most %d are allowed", len(m.Result), MaxProcessResult)
	}
	return m.Head.validate()
}

// Validate checks name and reason.
func (m *ProcessForceRound) Validate() error {
	if err := ValidateProcessName(m.Name); err != nil {
		return err
	}
	return validateText("reason", m.Text)
}

// Validate checks name, session and reason.
func (m *ProcessEvict) Validate() error {
	if err := ValidateProcessName(m.Name); err != nil {
		return err
	}
	if m.Session == 0 {
		return Errorf(StatusBadRequest, "session is 0; name the member to evict")
	}
	return validateText("reason", m.Text)
}

// Validate checks name and options.
func (m *ProcessAlter) Validate() error {
	if err := ValidateProcessName(m.Name); err != nil {
		return err
	}
	return m.Options.validate()
}

// Validate checks name and session. The epoch may be 0: the member knows of no round.
func (m *ProcessSync) Validate() error { return validateProcess(m.Name, m.Session, 1) }

// Validate checks name, session, epoch, numbers, receivers and payload. Whether a receiver is named twice is for the relay to see.
func (m *ProcessRequest) Validate() error {
	if err := validateProcess(m.Name, m.Session, m.Epoch); err != nil {
		return err
	}
	if m.Number == 0 || m.Low == 0 || m.Low > m.Number {
		return Errorf(StatusBadRequest, "number %d and low %d of the message do not fit; numbers start from 1, and low is not above", m.Number, m.Low)
	}
	if len(m.To) == 0 || len(m.To) > MaxProcessMembers {
		return Errorf(StatusBadRequest, "message has %d receivers; it must have 1 to %d", len(m.To), MaxProcessMembers)
	}
	return validateProcessPayload(m.Payload)
}

// Validate checks name, session, epoch, what is answered, and payload.
func (m *ProcessReply) Validate() error {
	if err := validateProcess(m.Name, m.Session, m.Epoch); err != nil {
		return err
	}
	if m.To == 0 || m.Number == 0 {
		return Errorf(StatusBadRequest, "sender %d and number %d name no message; give those of the message that is answered", m.To, m.Number)
	}
	return validateProcessPayload(m.Payload)
}

func validateProcessPayload(payload []byte) error {
	if len(payload) > MaxProcessPayload {
		return Errorf(StatusBadRequest, "message is %d bytes long; at most %d are allowed", len(payload), MaxProcessPayload)
	}
	return nil
}

// Validate checks name, flags and consistency.
func (m *ProcessDescribe) Validate() error {
	if err := ValidateProcessName(m.Name); err != nil {
		return err
	}
	if unknown := m.Flags &^ (WithProcessMembers | WithProcessHistory); unknown != 0 {
		return Errorf(StatusBadRequest, "describe has unknown flags (bits %#x); leave them out, or upgrade the server first", unknown)
	}
	return validateConsistency(m.Consistency)
}

// Validate checks prefix and consistency.
func (m *ProcessList) Validate() error {
	if len(m.Prefix) > MaxProcessName {
		return Errorf(StatusBadRequest, "process name is %d bytes long; at most %d are allowed", len(m.Prefix), MaxProcessName)
	}
	return validateConsistency(m.Consistency)
}

// Validate checks the name.
func (m *ProcessWatch) Validate() error { return ValidateProcessName(m.Name) }
