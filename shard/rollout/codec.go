package rollout

import "encoding/binary"

// Numbers are uvarints, byte strings have their length before them, flags are one byte.

func num(b []byte, list ...uint64) []byte {
	for _, n := range list {
		b = binary.AppendUvarint(b, n)
	}
	return b
}

func str[S ~string | ~[]byte](b []byte, s S) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

func flag(b []byte, v bool) []byte {
	if v {
		return append(b, 1)
	}
	return append(b, 0)
}

// reader reads from the front of b. The first error sticks, and everything after it reads as zero.
type reader struct {
	b   []byte
	bad bool
}

func (r *reader) num() uint64 {
	v, n := binary.Uvarint(r.b)
	if n <= 0 {
		r.bad, r.b = true, nil
		return 0
	}
	r.b = r.b[n:]
	return v
}

func (r *reader) byte() byte {
	if len(r.b) == 0 {
		r.bad = true
		return 0
	}
	v := r.b[0]
	r.b = r.b[1:]
	return v
}

func (r *reader) flag() bool {
	v := r.byte()
	r.bad = r.bad || v > 1
	return v == 1
}

func (r *reader) bytes(most int) []byte {
	n := r.num()
	if r.bad || n > uint64(len(r.b)) || n > uint64(most) {
		r.bad, r.b = true, nil
		return nil
	}
	v := r.b[:n:n]
	r.b = r.b[n:]
	return v
}

func (r *reader) str(most int) string { return string(r.bytes(most)) }

// count reads how many elements follow, each of at least one byte.
func (r *reader) count(most int) int {
	n := r.num()
	if r.bad || n > uint64(most) || n > uint64(len(r.b)) {
		r.bad, r.b = true, nil
		return 0
	}
	return int(n)
}
