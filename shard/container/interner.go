package container

// Interner keeps short texts that many sessions share, such as the address of a connection that a
// thousand of them are attached on: each is one string then. A newer text replaces an older one. It
// only saves memory: no outcome depends on it, and no snapshot has it.
type Interner [64]string

// maxInterned is what is worth a place here.
const maxInterned = 64

// String returns a string that others may share.
func (i *Interner) String(b string) string { return internText(i, b) }

// Bytes is String for bytes that the caller keeps.
func (i *Interner) Bytes(b []byte) string { return internText(i, b) }

func internText[T string | []byte](t *Interner, b T) string {
	if len(b) == 0 || len(b) > maxInterned {
		return string(b)
	}
	h := uint32(2166136261) // FNV-1a
	for i := range len(b) {
		h = (h ^ uint32(b[i])) * 16777619
	}
	p := &t[h%uint32(len(t))]
	if *p != string(b) {
		*p = string(b)
	}
	return *p
}
