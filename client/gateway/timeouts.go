package gateway

import "time"

// A client of the gateway believes in what it holds for its timeout after each message from the
// gateway. So the gateway sends nothing once less than that is left of the native session: see
// [client.Session.Remaining]. The native session's timeout is longer than the client's, so that
// this happens only if the cluster does not answer for longer than the slack: a quarter of the
// timeout, 0.5 s to 5 s. If the gateway dies, the cluster keeps the session for the longer time,
// and the client has stopped believing by then.
const (
	slackShare = 4
	minSlack   = 500 * time.Millisecond
	maxSlack   = 5 * time.Second
	// keepAlives are sent in the slack, so that two may be lost.
	keepAlives = 3
	// MaxTimeout is the longest timeout that a client can have. What the native session has beyond
	// it is the slack, and what a session may not be relied on for; see sessionstate.Window.
	MaxTimeout = 25 * time.Minute
	// maxGrace is the longest grace period of a node.
	maxGrace = 30 * time.Second
)

// Slack is how long the cluster may not answer before a client with a timeout is affected.
func Slack(timeout time.Duration) time.Duration {
	return min(max(timeout/slackShare, minSlack), maxSlack)
}

// NativeTimeout is the native session's timeout: the shortest one that may be relied on for the
// client's timeout and the slack.
func NativeTimeout(timeout time.Duration) time.Duration {
	window := timeout + Slack(timeout)
	// Both limits of sessionstate.Window, solved for the timeout and rounded up to a millisecond.
	native := max(window*100/85, (window+maxGrace*2/100)*100/98)
	return (native + time.Millisecond).Truncate(time.Millisecond)
}

// Timeout is the longest timeout of a client, in whole seconds, whose native session has this one:
// no client may have been told more. It is at least a second.
func Timeout(native time.Duration) time.Duration {
	timeout := min(native.Truncate(time.Second), MaxTimeout)
	for timeout > time.Second && NativeTimeout(timeout) > native {
		timeout -= time.Second
	}
	return max(timeout, time.Second)
}

// KeepAlive is the time between two keep-alives of the native session for a client's timeout.
func KeepAlive(timeout time.Duration) time.Duration { return Slack(timeout) / keepAlives }
