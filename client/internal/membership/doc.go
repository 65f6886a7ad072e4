// Package process decides what a member of a coordination process does: which callback of its
// handler runs next, what is sent, and what of that is sent again. It is a pure step machine: it
// has no goroutine, reads no clock and does no I/O.
//
//	m := process.New(session, process.Options{})
//	m.Told(now, &round)                          // a process_round event
//	m.Letter(now, &message)                      // a process_message event
//	for job, ok := m.Job(); ok; job, ok = m.Job() {
//		m.Ran(now, job, run(job))            // callbacks run one after the other
//	}
//	for _, s := range m.Take().Sends {
//		m.Answered(now, s, send(s))          // every send is answered once; UNAVAILABLE stands for a lost connection
//	}
//	m.Tick(now)                                  // when Next says so
//
// Methods must not be called at the same time. Payloads that are given to it are kept, and never
// written to.
package membership
