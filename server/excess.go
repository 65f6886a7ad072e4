package server

import "sync/atomic"

// A client that is told no, or pong, at once, asks again at once, and so can keep an instance busy with saying so. So answers to nothing but excess wait when there have
// been many of them: excess is a request beyond the node's quota of requests a second or beyond the connection's window, and a ping, of which no client needs many. Whoever
// waits for such answers asks a few times a second at most, and each time that it goes on like that, half as often. Nobody else is kept waiting, and a request that is
// carried out has everything before it written.
const (
	excessAlone    = 256  // so many answers to excess a connection gets at once between two sweeps; the shortest session timeout takes 20 pings in that time
	excessTogether = 4096 // when all connections together got so many between two sweeps, each gets excessAmong at once
	excessAmong    = 32
	excessMost     = 8 // sweeps that such answers wait at most: 4 s
)

// turns count sweeps, and what there was of excess since the last.
type turns struct {
	turn  atomic.Uint64 // from 1
	count atomic.Int64
}

// next begins a turn.
func (t *turns) next() (turn uint64) {
	t.count.Store(0)
	return t.turn.Add(1)
}

// excess is what one connection asks beyond what it may. The goroutine that feeds owns it.
type excess struct {
	turn  uint64 // in which n was counted
	n     int
	until uint64 // the turn in which answers went out that had to wait, or will
	waits uint64 // how many turns they waited
}

// count counts those among the frames of a feed, and answers in which turn their answers may go out; 0 is at once.
func (e *excess) count(t *turns, n, frames int) (until uint64) {
	if n == 0 {
		return 0
	}
	turn := t.turn.Load()
	if e.turn != turn {
		e.turn, e.n = turn, 0
	}
	e.n += n
	together := t.count.Add(int64(n))
	switch {
	case n < frames: // among the answers is one that somebody may wait for
		return 0
	case e.until > turn: // what came before waits still
		return e.until
	case e.n <= excessAmong, e.n <= excessAlone && together <= excessTogether:
		return 0
	case e.until > 0 && turn <= e.until+1:
		e.waits = min(2*e.waits, excessMost)
	default:
		e.waits = 1
	}
	e.until = turn + e.waits
	return e.until
}
