package shard

// texts keeps short texts that many sessions have in common, such as the address of a connection that a thousand of them are attached on: each is one string then, and not
// one for each session. It forgets by being overwritten. What it keeps is memory alone: no outcome depends on it, and it is in no snapshot.
type interner [64]string

// maxInterned is what is worth a place here.
const maxInterned = 64

// of gives a text as a string that others may have too.
func (t *interner) intern(b string) string {
	if len(b) == 0 || len(b) > maxInterned {
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

// internBytes is of for bytes that are another's.
func (t *interner) internBytes(b []byte) string {
	if len(b) > maxInterned {
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
