package leader

// leadership is what the parts of a Leader share: the present leadership, its clock, and what
// leaves. Only Leader starts and stops it, and tells the clock the time.
type leadership struct {
	cfg   Config
	epoch uint64 // 0: none
	clock clock
	stats Stats
	ready *Ready // what leaves with the next Take

	// stood is for how long the leader has stood still, until stoodAt by log time; 0: it has not. If the
	// log does not know it, it is logged with the next detach, or while something is to expire.
	stood, stoodAt uint64
	unlogged       bool
	expires        bool
	longest        uint64 // timeout of a session that was attached, in ms
}

// stoodStill notes that for so long the leader could not run, or no barrier succeeded, if a session may
// have noticed. A longer time counts until no session is left that was silent then.
func (l *leadership) stoodStill(d uint64) {
	if now := l.clock.now(); d > PauseGap && (d >= l.stood || now-l.stoodAt > l.longest) {
		l.stood, l.stoodAt, l.unlogged = d, now, true
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
