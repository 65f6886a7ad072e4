package remotesession

// Scenario bounds a search: what may happen besides the steps that the protocol itself takes, and
// how often.
type Scenario struct {
	Name  string
	Fault Fault

	HomeAt, SemAt uint8 // shards, 0..2, that own the session's home bucket and the semaphore's bucket at first
	Unstarted     bool  // the session starts within the search instead of before it

	Acquires  uint8 // acquires the session's clients may send
	Releases  uint8 // releases by a client
	Attaches  uint8 // take-overs, at most 1
	Ends      uint8 // ends of the session, at most 1
	Leaders   uint8 // leader changes
	HomeMoves uint8 // moves of the home bucket, aborted ones included
	SemMoves  uint8 // moves of the semaphore's bucket
	Aborts    uint8
	Dups      uint8 // messages delivered, and steps of a move applied, a second time
	Resets    uint8 // questions abandoned although their answer is on its way, and links abandoned although they work
}
