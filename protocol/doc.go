// Package protocol is the wire of signalbox: frames, messages, status codes, and the two rules both
// ends must share, how a name finds its bucket and how a session id is built.
//
// This page is enough to write a client in any language, together with DESIGN.md beside it, which
// lists every message with its fields, and testdata/vectors.json and testdata/routing.txt, which
// hold bytes to test against.
//
// # Frames
//
// A connection is TCP, or TLS over it, and carries frames in both directions. A frame is a 4-byte
// big-endian length, then the body: one msgpack array of exactly four values, [kind, id, arg,
// body]. The body is an array of the message's fields in the order of its struct; a struct or list
// inside is an array of its own, except [Head], whose three fields stand flat at the start of the
// body. Unsigned integers may have any msgpack width, bytes may be bin or str, nil is empty. Fields
// are only ever added at the end: skip unknown fields, and take zero for missing ones.
//
//	request  [kind, request id, bucket, body]            client to server
//	reply    [kind + 0x80, request id, status, body]     one for each request but ping
//	event    [kind, 0 or watch id, shard, body]          server to client, unasked
//
// The body of a reply is [Failure] unless the status is OK. Request ids are the client's choice and
// need only differ among the unanswered requests and open streams of the connection. Replies come
// in any order. A frame that breaks a rule above (too long, not msgpack, nested deeper than
// [MaxDepth]) closes the connection, after a goodbye that says why. A field of a wrong type, or out
// of its range, is answered BAD_REQUEST; an unknown kind UNSUPPORTED.
//
// # Hello
//
// The first frame is [Hello], within 5 s and at most [MaxHelloLen] long. [HelloReply] gives the
// limits that hold from then on: the longest frame, the longest data, and the window, which is how
// many requests may be unanswered at a time. A request over the window is answered OVERLOADED.
// Pings are outside it, and an acquire that was queued has been answered. Any other status
// refuses the client, and the connection is closed.
//
// # Finding the way
//
// A key space (tier) is cut into buckets, shards own buckets, and each shard has a master, the
// instance that serves it. [MapRequest] fetches the map. A name's bucket is [Bucket] of the
// coordination node's id and the name; a session's home bucket is [HomeBucket] of its create id,
// and [SessionBucket] of its id later. A node's id and tier come from [NodeDescribe] and never
// change. So a request goes to
//
//	bucket -> run of the tier that holds it -> shard -> master -> address
//
// with the bucket in the frame. Connect to each instance once and share the connection among all
// sessions. When the map is stale the answer is WRONG_SHARD or UNAVAILABLE. With WRONG_SHARD,
// [Failure] names a shard, its master if that is known, and the version of the server's map. If the
// map is newer than yours, send again to that shard, and fetch the map. If you know of another
// master, send again there. Otherwise pause and send again. With UNAVAILABLE the shard has no
// leader here now: back off, ask another replica, or fetch the map, and send again. [MapChanged]
// tells early. Lists over all shards ([List], [SessionList], [Watch] of a prefix) are asked shard
// by shard, with any bucket of the shard in the frame, and merged by the client.
//
// # Sessions
//
// [SessionStart] goes to the home bucket with a random create id, a random key and a random nonce.
// It may be sent again with the same three until it is answered: there will be one session. The
// reply has its id, its attach epoch (1), its home shard, the timeout in force and a ticket. The
// session is now attached to this connection. A start that names the node by its path may also go
// out right behind the hello, with [HomeOfCreateID] for a bucket. The answers to what came before
// it may then come together with its own, 40 ms later at most.
//
// [SessionAttach], with the key and an epoch higher than any before, moves it to another
// connection: after a lost link, or after a restart of the client. The connection that had it gets
// [TakenOver]; what it still sends is refused with BAD_SESSION. (So does a start that was sent
// again on another connection.) Raise the epoch with each attempt, and leave one out behind a start
// or an attach that was sent more than once. SESSION_EXPIRED means gone for good: ids never come
// back. [SessionStop] ends a session at once and frees what it holds; always send it, or others
// wait for the whole timeout.
//
// The nonce names the holder: one client object, over all its connections. Another process that
// takes the session over, with its id and key, has a nonce of its own. Its first epoch and its
// request numbers are above all that the holder before can have used; the Go client begins 2^32
// epochs and 2^40 numbers further with each restore. It sends that first attach under one epoch
// until it is answered: with an equal epoch and another nonce the answer is BAD_SESSION, so that of
// two processes that go by the same saved state one gets the session.
//
// # Keeping a session alive
//
// Send a ping, an empty body, on every connection, every quarter of the shortest timeout of the
// sessions on it. Its [KindPong] with arg 0 comes at once and says only that the link is up. Then
// comes one pong for each home shard of the sessions attached on this connection, with the shard as
// arg:
//
//	pong of shard S for a ping sent at t: every session attached on this connection whose home is S
//	is safe until t + its timeout
//
// A start or attach that was answered OK renews the session in the same way, from the moment it was
// sent. No other frame renews anything. t is read before the ping is written, on a monotonic clock
// that runs on while the machine sleeps. Without a newer pong, stop believing in the session and in
// everything it holds before t + timeout, so before anyone else can be granted it: at the latest at
// t + 0.9 * timeout, and not after t + timeout - 0.02 * (timeout + grace period). The second bound
// is for clocks that run at different rates; it is the lower one where the grace period is more
// than four times the timeout. The Go client takes 0.85 in place of 0.9, and asks for a longer
// timeout where less than half would be left. The session may still be there then, and attaching
// tells. A ping may be answered late or, for some shards, never; do not wait for one before sending
// the next.
//
// When the session's home bucket moves to another shard, [Detached] takes the session off this
// connection, and no later pong renews it: fetch the map and attach it again, as after a lost
// link. It keeps what it holds until the time of its last renewal is over. The event may come
// before the reply to the attach whose epoch it names, which is void then.
//
// # Requests on a session
//
// Create, update, resize, delete, acquire and release start with [Head]. Seq counts the session's
// requests from 1, over all buckets and connections. Low is the lowest open number. Keep an
// unanswered request and send it again with the same Seq and the same fields (Low may have risen)
// when the link broke or the status was retryable: it is applied at most once, and a repeat gets
// the first answer. A number is closed by any other answer, errors and queued included, or when
// nobody waits for the answer any more: once a later request has come there, a late copy is
// refused. An acquire that was given up like this may be applied still. Send a release under a
// later number behind it on the same connection, or once Low is above the acquire's number.
//
// A connection accepts a session's requests if the session is attached on it or its ticket was
// shown there with [PresentTicket]. Send PresentTicket once on each further connection and the
// request right behind it, without waiting; show the new ticket after each attach. BAD_SESSION
// means: not presented here, or attached elsewhere since. If it is the answer behind a ticket
// that was shown again, attach again: an attach whose answer was lost has raised the epoch. An
// instance that serves the session's home answers SESSION_EXPIRED for an id that ended or was
// never given out; another one may say BAD_SESSION, and the attach tells.
//
// # Acquire
//
// The answer is acquired, not acquired (the timeout was 0), or queued. Then
// [AcquireResult], with the session and the request's Seq, comes later, on the connection to that
// instance on which the session was attached or presented last: acquired, not acquired when the
// timeout ended, or a status (ABORTED by another request of the session or by an operator,
// SESSION_EXPIRED when the session ended before the wait did). The session's home shard sends
// SESSION_EXPIRED before [SessionEnded]. Another shard sends it when it learns of the end, usually
// behind [SessionEnded], and then with the same message. If the connection is lost before, send the
// same acquire again, with the same Seq, on the new one: it is answered with where it stands now
// and the event follows as before. There is one entry for each session and name; acquiring again
// replaces count, data and timeout, and never adds. A timed acquire measures its timeout at the
// server.
//
// The order id of a grant is the fencing token: it rises with every grant of a name, for as long as
// the node exists. Pass it to the protected resource. [LeaseLost] says that a lease was taken by
// force while the session lives: stop believing in it at once. After a lost connection send the
// acquire of each lease again, with its old Seq, to learn of one that was missed.
//
// The order id of queued is the place in the queue. It becomes the token of the grant where the
// semaphore is plain. Where it has a policy or slots, a grant from the queue draws a token of its
// own: take the token from [AcquireReply] or [AcquireResult] alone. A release with an order id
// matches the present one, so send 0 to leave a queue.
//
// [AcquireOptions] ask for a level, a share by key, and slots by labels or names. They count where
// the semaphore has such options, see [SemaphoreOptions]; [Grant] names the slots. An acquire that
// replaces another one replaces them too, also by defaults: repeat level and key when you change
// count or data.
//
// A hold has a bound where the semaphore has a longest hold, or the acquire asks for one. At the bound
// the server ends the lease, by a [LeaseLost], so the client has to stop before. An acquire says with
// [KnowsBounds] that it does; without the flag such a hold is refused with [RefusalBound], and the
// client may ask again with it. [Grant] says how long to rely on the lease. A
// request that comes again under its number changes nothing and has a newer Now: send it again
// after a wait longer than the hold, late in a long hold, and when a connection is lost. An owner
// asks for more time by an acquire of the same units with Hold; its other changes leave Hold out.
//
// [LeasePreempted] says that a waiter preempts an owner. It may have a bound, which the client
// notes and then confirms by an acquire of the same with Known: the server ends the lease at it only
// then.
//
// # Watching
//
// One-shot: [Describe] with WatchData or WatchOwners and a WatchID reads and arms in one step, at
// the shard's master, for one session. [WatchFired] comes once and carries the WatchID. Neither
// flag set means that something may have been missed, or that a newer watch of the session on this
// name replaced it: read again. A lost connection has fired all its watches. A watch set over a
// page with a cursor is not armed: only the first page arms.
//
// Stream: [Watch] on a name or a prefix of names, in one shard. After its reply come [Snapshot]
// pages with the watch's request id in order of name, the last one marked. The first page resets
// whatever was known. [Delta]s come between the pages and after them, once for all streams of a
// connection: hand each to every stream of its shard and node whose name or prefix matches and
// whose pages have reached the name, and apply it there. [Snapshot] has the rule in full. A slow
// reader gets a new snapshot instead of a growing queue, and so does a prefix when buckets come to
// the shard or leave it. A snapshot speaks for the buckets in its Runs only: what it lacks of
// others may be in another shard. [StreamCut] ends a stream: open it again, elsewhere if its status
// is WRONG_SHARD. [Unwatch] closes it; frames already on their way may still arrive.
//
// # Coordination processes
//
// A process is a name in a coordination node, with members: sessions that sent [ProcessJoin]. It
// lives in [ProcessBucket] of its node and name. For each change of the list of members one round
// runs, which has an epoch. What a member is told comes as [ProcessRound] on the connection to the
// shard's master on which its session was attached or presented last; what is not confirmed is told
// again.
//
// A member acts by comparing epochs. Lower than the highest it knows: ignore it. Prepare or resume
// of a higher one: a round that is open is over (complete if its epoch is CompletedEpoch, else
// cancelled); prepare the new one, then send [ProcessConfirm] or [ProcessFail]. Prepare of the open
// one: confirm again. Coordinate: exchange messages, then send [ProcessComplete]. Complete:
// complete the round, once, and confirm; confirm again when told again. Cancel: the round is over,
// and is not prepared any more. Resume: prepare and complete by itself, and confirm that it
// completed. Removed: an open round is over, and so is the membership; do not join again by itself.
// Each round that was prepared ends with one cancel or one complete.
//
// Messages go between the members of a round through [ProcessRequest], which arrives as
// [ProcessMessage], and [ProcessReply], whose content comes back so. They are soft state of the
// shard's leader: send again, from 50 ms to 5 s apart, what lacks an answer, under its number. A
// receiver remembers its replies for the epoch, by sender and number, down to the sender's Low, and
// answers a copy from that memory; what comes below Low, or when its round is over, it does not
// execute. Token of a round is the fencing token for a member's work outside.
//
// After an attach, and after each new connection to the shard's master, send [ProcessSync].
// NOT_FOUND says that the session is not a member. ABORTED to anything about a round says that it
// is over: drop it. A server that has no processes answers UNSUPPORTED to all of these kinds.
//
// # Rollouts
//
// A track hands out versions to the instances of ordered locations ([TrackCreate], named
// service/cluster). It lives in the bucket of its node and name, and is a kind of object of its
// own: a semaphore may have the same name. An instance is a session that sent [TrackRegister]; it
// goes when the session ends. Its calls carry the incarnation that the reply gave: once another
// registration has the id they are refused with [RefusalFenced], and the session is not.
//
// [TrackPoll] is the one call that moves targets, and carries the report of the last update. It is
// answered from the leader's memory when it changes nothing, so it may be sent often; better, open
// a [TrackWatch] with Targets and poll when a target changes or the location is READY. What the
// answer names is what to load; with no version load nothing. Report OK, SOURCE_ERROR or a code of
// your own, under a rising Seq, and how often you have tried. Register as a follower, and send
// [TrackSetRole] when the data is loaded and served. While the server is away keep what you have,
// and never move on alone.
//
// A server that has no rollouts answers UNSUPPORTED to all of these kinds.
//
// # Operators
//
// [Cluster] asks any instance about the cluster, or tells it to change: a method's name and a JSON
// document go out, a JSON document comes back. cluster.go has the methods. JSON here and msgpack
// everywhere else, because people and scripts keep these documents, and nothing on a hot path does.
//
// # The end of a connection
//
// [Goodbye] says why the server is about to close: shutting down, idle, or a broken rule.
// Unanswered requests are sent again elsewhere. A connection on which nothing is sent for long is
// closed, and the sessions attached on a lost or silent connection expire their timeout after the
// server last heard of them, so attach again at once. [SessionEnded] says that an attached session
// is gone, and why.
//
// Back off between attempts to connect, at random between 50 ms and 5 s and growing, or all clients
// return in the same moment.
//
// # Errors
//
// [Status] numbers are stable. OVERLOADED, UNAVAILABLE and WRONG_SHARD are retryable: nothing was
// applied, and the same request may be sent again as it is. One UNAVAILABLE is an exception: if its
// [Failure] names a shard, a change of the cluster or of its nodes waits for that shard, which has
// no majority, and may still happen. In Go, errors.Is(err,
// protocol.StatusNotFound) tells outcomes apart and [Retryable] asks the question.
//
// # Promises
//
// What is on the wire stays from release to release. Go names of this package promise nothing: they
// change with any release.
package protocol
