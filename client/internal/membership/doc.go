// Package membership decides what a member of a coordination process does: which callback of its
// handler runs next, what is sent, and what is sent again. It is a pure step machine: no goroutine,
// no clock, no I/O.
//
//	m := membership.New(session, membership.Options{})
//	m.HandleRound(now, &round)     // a process_round event
//	m.HandleMessage(now, &message) // a process_message event
//	for job, ok := m.NextJob(); ok; job, ok = m.NextJob() {
//		m.JobDone(now, job, run(job)) // callbacks run one after the other
//	}
//	for _, s := range m.Take().Sends {
//		m.Answered(now, s, send(s)) // each send once; UNAVAILABLE for a lost connection
//	}
//	m.Tick(now) // when Next says so
//
// Methods must not be called concurrently. The machine keeps payloads and never writes to them.
package membership
