package ratelimit

// Statement and SetStatement are the server's statement of a limiter's lease, which it presents with
// its next refresh.
func Statement(x *Limiter) []byte {
	x.e.mu.Lock()
	defer x.e.mu.Unlock()
	return append([]byte{}, x.l.statement...)
}

// SetStatement has it present another one.
func SetStatement(x *Limiter, statement []byte) {
	x.e.mu.Lock()
	defer x.e.mu.Unlock()
	x.l.statement = append(x.l.statement[:0], statement...)
}
