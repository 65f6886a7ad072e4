package leader

// leadership is what the parts of a Leader share: the present leadership, its clock, and what
// leaves. Only Leader starts and stops it, and tells the clock the time.
type leadership struct {
	cfg   Config
	epoch uint64 // 0: none
	clock clock
	stats Stats
	ready *Ready // what leaves with the next Take

	// stood is for how long the leader has stood still, until stoodAt by log time, which the log does not
	// know; 0: it knows all. It is logged with the next detach, or while something is to expire.
	stood, stoodAt uint64
	expires        bool
}

// stoodStill notes that for so long the leader could not run, or no barrier succeeded, if a session may
// have noticed.
func (l *leadership) stoodStill(d uint64) {
	if d > PauseGap {
		l.stood, l.stoodAt = max(l.stood, d), l.clock.now()
	}
}

// send sends a message to the leader of a shard.
func (l *leadership) send(to uint64, m message) {
	l.ready.Messages = append(l.ready.Messages, Message{to, encode(m)})
}

// cutConn takes a connection away. Without a reason only its sessions at home here leave it.
func (l *leadership) cutConn(conn uint64, reason string) {
	l.ready.Cut = append(l.ready.Cut, Cut{conn, reason})
}
