package protocol

import "unicode/utf8"

// What follows are fields with their limits. Encode and decode take them as they are; check
// refuses.

// checks reports whether this pass is the check and that nothing was refused so far.
func (f *fields) checks() bool { return f.pass == check && f.in.err == nil }

// refuse keeps the first fault that check finds. The text names the fault and the allowed range.
func (f *fields) refuse(format string, args ...any) {
	if f.checks() {
		f.in.err = Errorf(StatusBadRequest, format, args...)
	}
}

// MaxTierLen is the longest name of a tier, in bytes.
const MaxTierLen = 256

// head is the head of a session's request, flat in the array of its body.
func (f *fields) head(h *Head) {
	f.uint("session", &h.Session)
	f.uint("seq", &h.Seq)
	f.uint("low", &h.Low)
	f.noSeq = f.pass == check && h.Seq == 0
}

// limited is a field of at most most bytes. what names it in the refusal.
func (f *fields) limited(field string, v *[]byte, what string, most int) {
	f.bytes(field, v)
	if f.checks() && len(*v) > most {
		f.refuse("%s is %d bytes long; at most %d are allowed", what, len(*v), most)
	}
}

// name is a semaphore's name.
func (f *fields) name(v *[]byte) {
	f.limited("name", v, "semaphore name", MaxNameLen)
	if f.checks() && len(*v) == 0 {
		f.refuse("semaphore name is empty; it must be 1 to %d bytes long", MaxNameLen)
	}
}

// track is a track's name.
func (f *fields) track(v *[]byte) {
	f.bytes("name", v)
	if n := len(*v); f.checks() && (n == 0 || n > MaxNameLen) {
		f.refuse("track name is %d bytes long; it must be 1 to %d, as in service/cluster", n, MaxNameLen)
	}
}

// process is a process's name.
func (f *fields) process(v *[]byte) {
	f.bytes("name", v)
	if f.checks() {
		f.keep(ValidateProcessName(*v))
	}
}

// keep makes err, a *Error, the refusal, if it is one and the first.
func (f *fields) keep(err error) {
	if e, ok := err.(*Error); ok && f.checks() {
		f.in.err = e
	}
}

// data checks the data of a semaphore or of its owner.
func (f *fields) data(field string, v *[]byte) { f.limited(field, v, "data", MaxDataLen) }

// text is shown to people. It is UTF-8, because clients in other languages cannot read a msgpack
// string that is not.
func (f *fields) text(field string, v *string, what string, most int) {
	f.str(field, v)
	f.checkText(*v, what, most)
}

// trailingReason is a reason for the audit log at the end of a message, which is left out when it
// is empty. absent must recognize a part before it that is left out.
func (f *fields) trailingReason(v *string) {
	if f.pass != encode || *v != "" {
		f.text("reason", v, "reason", MaxDescriptionLen)
	}
}

// trailingBytes is bytes at the end of a message, which are left out when there are none.
func (f *fields) trailingBytes(field string, v *[]byte) {
	if f.pass != encode || len(*v) > 0 {
		f.bytes(field, v)
	}
}

// trailingUint is a number at the end of a message, which is left out when it is 0.
func (f *fields) trailingUint(field string, v *uint64) {
	if f.pass != encode || *v != 0 {
		f.uint(field, v)
	}
}

// absent stands for a part that is left out before another one that is not.
func (f *fields) absent() {
	if f.pass == encode {
		f.out = append(f.out, nilByte)
		f.written++
	}
}

func (f *fields) checkText(s, what string, most int) {
	switch {
	case !f.checks() || s == "":
	case len(s) > most:
		f.refuse("%s is %d bytes long; at most %d are allowed", what, len(s), most)
	case !utf8.ValidString(s):
		f.refuse("%s is not valid UTF-8; it is text for people", what)
	}
}

// reason is an operator's reason to act against a client; it must be given.
func (f *fields) reason(v *string) {
	f.text("reason", v, "reason", MaxDescriptionLen)
	if !f.checks() {
		return
	}
	for _, r := range *v {
		if r > ' ' {
			return
		}
	}
	f.refuse("reason is empty; say why, for those whom it hits and for the records")
}

// printable is text without control characters.
func (f *fields) printable(field string, v *string, what string, most int) {
	f.str(field, v)
	f.checkPrintable(*v, what, most)
}

func (f *fields) checkPrintable(s, what string, most int) {
	f.checkText(s, what, most)
	if !f.checks() {
		return
	}
	for i := range len(s) {
		if s[i] < ' ' || s[i] == 0x7f {
			f.refuse("%s has control characters; leave them out", what)
			return
		}
	}
}

// label is printable text that is not empty.
func (f *fields) label(field string, v *string, what string, most int) {
	f.str(field, v)
	f.checkLabel(*v, what, most)
}

func (f *fields) checkLabel(s, what string, most int) {
	if s == "" {
		f.refuse("%s is empty; it must be 1 to %d bytes long", what, most)
	}
	f.checkPrintable(s, what, most)
}

// labels is a list of labels.
func (f *fields) labels(field string, v *[]string, what string, most int) {
	f.strs(field, v)
	if f.pass == check {
		for _, s := range *v {
			f.checkLabel(s, what, most)
		}
	}
}

// millis is a time in ms.
func (f *fields) millis(field string, v *uint64, what string, most uint64) {
	f.uint(field, v)
	if f.checks() && *v > most {
		f.keep(validateMillis(f.part+what, *v, 0, most))
	}
}

// enum is a number from low to high; known lists the meanings.
func enum[T ~uint8](f *fields, field string, v *T, what string, low, high T, known string) {
	small(f, field, v)
	if f.checks() && (*v < low || *v > high) {
		f.refuse("%s%s is %d; it must be %s", f.part, what, *v, known)
	}
}

func (f *fields) consistency(v *Consistency) {
	enum(f, "consistency", v, "consistency", 0, Relaxed, "0 (as the node says), 1 (strict) or 2 (relaxed)")
}

// flags is a set of bits; what names the request.
func (f *fields) flags(v *uint8, known uint8, what string) {
	small(f, "flags", v)
	if unknown := *v &^ known; f.checks() && unknown != 0 {
		f.refuse("%s has unknown flags (bits %#x); leave them out, or upgrade the server first", what, unknown)
	}
}

// positive is a number that is not 0; the text refuses 0.
func (f *fields) positive(field string, v *uint64, text string) {
	f.uint(field, v)
	if *v == 0 && f.checks() {
		f.refuse("%s", text)
	}
}

// limit is a semaphore's limit.
func (f *fields) limit(v *uint64) {
	f.positive("limit", v, "semaphore limit is 0; it must be at least 1")
}

// path is the path of a coordination node.
func (f *fields) path(v *string) {
	f.str("path", v)
	if f.checks() {
		f.keep(ValidatePath(*v))
	}
}

// sessionKey is the key that protects a session.
func (f *fields) sessionKey(v *[]byte) {
	f.bytes("key", v)
	if f.checks() && len(*v) != KeyLen {
		f.refuse("session key is %d bytes long; it must be the %d random bytes the session was started with", len(*v),
			KeyLen)
	}
}

// nonce names the holder of a session.
func (f *fields) nonce(v *uint64) {
	f.positive("nonce", v,
		"session nonce is 0; it must be a random number that this holder of the session has to itself")
}

// member is the session of a process's member.
func (f *fields) member(v *uint64) {
	f.positive("session", v, "session is 0; name the session that is a member")
}

// epoch is the epoch of a round.
func (f *fields) epoch(v *uint64) {
	f.positive("epoch", v, "epoch is 0; give the one of the round")
}

// version is a track's version, or 0.
func (f *fields) version(field string, v *uint64) {
	f.uint(field, v)
	if *v > MaxTrackVersion {
		f.refuse("%s is %d; at most 2^63-1 is allowed", field, *v)
	}
}

// incarnation is the incarnation of a track's instance.
func (f *fields) incarnation(v *uint64) {
	f.positive("incarnation", v, "incarnation is 0; give the one that the registration answered")
}

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
