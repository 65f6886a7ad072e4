package shard

// texts keeps short texts that many sessions have in common, such as the address of a connection that a thousand of them are attached on: each is one string then, and not
// one for each session. It forgets by being overwritten. What it keeps is memory alone: no outcome depends on it, and it is in no snapshot.
type texts [64]string

// longestText is what is worth a place here.
const longestText = 64

// of gives a text as a string that others may have too.
func (t *texts) of(b string) string {
	if len(b) == 0 || len(b) > longestText {
		return b
	}
	h := uint32(2166136261) // FNV-1a
	for i := range len(b) {
		h = (h ^ uint32(b[i])) * 16777619
	}
	p := &t[h%uint32(len(t))]
	if *p != b {
		*p = b
	}
	return *p
}

// ofBytes is of for bytes that are another's.
func (t *texts) ofBytes(b []byte) string {
	if len(b) > longestText {
		return string(b)
	}
	h := uint32(2166136261)
	for _, c := range b {
		h = (h ^ uint32(c)) * 16777619
	}
	p := &t[h%uint32(len(t))]
	if *p != string(b) {
		*p = string(b)
	}
	return *p
}
