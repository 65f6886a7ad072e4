// Package machine decides what becomes of the requests on one HTTP session: which of them start an
// acquire, wait for one, or take the place of an older request, and when a place in a queue, a
// grant or the whole session is given up. It is pure: time comes in as a value, since any moment in
// the past, and what is to be done goes out as a [Ready].
//
// A session goes through these states, never back:
//
//	| state    | what it is                         | a request       | nobody calls   |
//	|----------|------------------------------------|-----------------|----------------|
//	| Starting | it is started, or taken over       | waits for Live  | stays          |
//	| Live     | its gateway serves it              | is served       | ends by itself |
//	| Stopping | its end was asked for              | session_expired | stays          |
//	| Over     | it ended, or is served elsewhere   | what ended it   | forgotten      |
//
// A name is in the session's table while it is held, waited for, or given up and not yet answered.
// What each request does there, by what the name is at that moment:
//
//	| request            | free    | waiting, same set | waiting, other set | held                        |
//	|--------------------|---------|-------------------|--------------------|-----------------------------|
//	| acquire            | starts  | joins             | restarts; the      | is confirmed by the cluster |
//	|                    |         |                   | older ones abort   | more units: refused         |
//	| release            | by name | leaves the queue  | leaves the queue   | releases                    |
//	| release with token | nothing | nothing           | nothing            | releases that grant alone   |
//	| caller hangs up    | -       | 5 s to come again | 5 s to come again  | -                           |
//	| caller gives up    | -       | leaves the queue  | leaves the queue   | -                           |
//
// A session that its caller uses for one hold is used up by its end, so a request that arrives late
// finds it Stopping or Over. A session that is kept over several holds has no such protection: a
// late acquire makes it hold the name again. A release with a token never takes away a later grant.
package machine
