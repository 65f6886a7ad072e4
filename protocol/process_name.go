package protocol

// ValidateProcessName checks the name of a coordination process: parts of a-z, A-Z and 0-9, with
// single dashes or dots between them, at most MaxProcessName bytes.
func ValidateProcessName(name []byte) error {
	if len(name) == 0 || len(name) > MaxProcessName {
		return Errorf(StatusBadRequest, "process name is %d bytes long; it must be 1 to %d", len(name), MaxProcessName)
	}
	inner := false // the byte before was a letter or digit
	for _, c := range name {
		alphanumeric := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		if !alphanumeric && (c != '-' && c != '.' || !inner) {
			inner = false
			break
		}
		inner = alphanumeric
	}
	if !inner {
		return Errorf(StatusBadRequest, "process name must be letters and digits, with single dashes or dots between them")
	}
	return nil
}
