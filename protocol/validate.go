package protocol

import "unicode/utf8"

// Validator is implemented by every request. Validate checks what needs no state: lengths and ranges of the arguments, in the order the
// specification gives. An error is a *Error, StatusBadRequest unless said otherwise, with a sentence that says what to do. The server's listener and its
// state machine both call it, so that no path around the listener applies what the specification forbids.
type Validator interface {
	Validate() error
}

// Validate checks the greeting. A version of another major number is StatusUnsupported.
func (m *Hello) Validate() error {
	if m.Magic != Magic {
		return Errorf(StatusBadRequest, "hello does not carry the magic %q; is this the port of another service?", Magic)
	}
	if m.Version != Version {
		return Errorf(StatusUnsupported, "protocol version %d is not spoken here; this server speaks version %d", m.Version, Version)
	}
	return validateText("client", m.Client)
}

// Validate has nothing to check.
func (m *Empty) Validate() error { return nil }

// Validate refuses an empty ticket, and checks the description.
func (m *PresentTicket) Validate() error {
	if len(m.Ticket) == 0 {
		return Errorf(StatusBadRequest, "ticket is empty; give the one that the start or attach of the session answered")
	}
	return validateText("session description", m.Description)
}

// Validate has nothing to check.
func (m *MapRequest) Validate() error { return nil }

// Validate checks the path. The config is checked by Merge.
func (m *NodeCreate) Validate() error { return ValidatePath(m.Path) }

// Validate checks the path. The config is checked by Merge.
func (m *NodeAlter) Validate() error { return ValidatePath(m.Path) }

// Validate checks the path.
func (m *NodeDescribe) Validate() error { return ValidatePath(m.Path) }

// Validate checks the path.
func (m *NodeDrop) Validate() error { return ValidatePath(m.Path) }

// Validate checks the prefix.
func (m *NodeList) Validate() error { return validatePathPrefix(m.Prefix) }

// Validate checks the method's form, and that the body is not longer than data may be. What is in the body is for the method to check.
func (m *Cluster) Validate() error {
	if len(m.Method) == 0 || len(m.Method) > MaxMethodLen {
		return Errorf(StatusBadRequest, "method is %d bytes long; it must be 1 to %d", len(m.Method), MaxMethodLen)
	}
	for _, r := range m.Method {
		if (r < 'a' || r > 'z') && r != '_' {
			return Errorf(StatusBadRequest, "method has characters other than a-z and _")
		}
	}
	return validateData(m.Body)
}

// validateName checks a semaphore's name.
func validateName(name []byte) error {
	if len(name) == 0 {
		return Errorf(StatusBadRequest, "semaphore name is empty; it must be 1 to %d bytes long", MaxNameLen)
	}
	return validatePrefix(name)
}

// validatePrefix checks the beginning of a name, empty included.
func validatePrefix(name []byte) error {
	if len(name) > MaxNameLen {
		return Errorf(StatusBadRequest, "semaphore name is %d bytes long; at most %d are allowed", len(name), MaxNameLen)
	}
	return nil
}

func validateData(data []byte) error {
	if len(data) > MaxDataLen {
		return Errorf(StatusBadRequest, "data is %d bytes long; at most %d are allowed", len(data), MaxDataLen)
	}
	return nil
}

func validateLimit(limit uint64) error {
	if limit == 0 {
		return Errorf(StatusBadRequest, "semaphore limit is 0; it must be at least 1")
	}
	return nil
}

// validateText checks words that are shown to people. They must be UTF-8, because clients in other languages cannot read a msgpack string that is not.
func validateText(field, text string) error {
	if len(text) > MaxDescriptionLen {
		return Errorf(StatusBadRequest, "%s is %d bytes long; at most %d are allowed", field, len(text), MaxDescriptionLen)
	}
	if !utf8.ValidString(text) {
		return Errorf(StatusBadRequest, "%s is not valid UTF-8; it is text for people", field)
	}
	return nil
}

func validateConsistency(c Consistency) error {
	if c > Relaxed {
		return Errorf(StatusBadRequest, "consistency is %d; it must be 0 (as the node says), 1 (strict) or 2 (relaxed)", c)
	}
	return nil
}
