package protocol

// CutFields returns a body without fields that were added to it. Of its values the first path[0]
// stay. A longer path leads into the part behind them: of its values the first path[1] stay, and so
// on. It reports whether there was anything to cut; if not, or if the body is malformed, it returns
// the body itself.
func CutFields(body []byte, path ...int) (cut []byte, found bool) {
	if len(path) == 0 || len(body) == 0 {
		return body, false
	}
	s := &shapes[body[0]]
	at := 1 + int(s.width)
	if s.class != listed || at > len(body) {
		return body, false
	}
	n := int(s.count)
	if s.width > 0 {
		n = int(bigEndian(body[1:at]))
	}
	if n <= path[0] {
		return body, false
	}
	head := at
	for range path[0] {
		size, err := valueLen(body[at:], MaxDepth-1)
		if err != nil {
			return body, false
		}
		at += size
	}
	if len(path) == 1 {
		return append(appendArray(nil, path[0]), body[head:at]...), true
	}
	size, err := valueLen(body[at:], MaxDepth-1)
	if err != nil {
		return body, false
	}
	part, found := CutFields(body[at:at+size], path[1:]...)
	if !found {
		return body, false
	}
	cut = append(cut, body[:at]...)
	return append(append(cut, part...), body[at+size:]...), true
}
