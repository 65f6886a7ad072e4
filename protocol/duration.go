package protocol

// validateMillis checks a time of a message. One that is negative as a signed number, which a
// client wrote without a check of its own, is shown as such.
func validateMillis(field string, ms, least, most uint64) error {
	if ms >= least && ms <= most {
		return nil
	}
	if shown := int64(ms); shown < 0 {
		return Errorf(StatusBadRequest, "%s is %d ms; it must be %d to %d ms", field, shown, least, most)
	}
	return Errorf(StatusBadRequest, "%s is %d ms; it must be %d to %d ms", field, ms, least, most)
}
