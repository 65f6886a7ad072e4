package metrics

// mostHTTPRequests is the cap on routes of locks by HTTP times their statuses.
const mostHTTPRequests = 512

var locksByHTTP = section("Locks by HTTP")

var (
	HTTPRequests = locksByHTTP.counter("signalbox_http_requests_total",
		"Requests that were answered; a stream counts when it ends. Those that fit no route have no method and no route.",
		"method", "route", "status").most(mostHTTPRequests)
	HTTPRefusals = locksByHTTP.counter("signalbox_http_refusals_total",
		"Requests answered with a problem, by its code.", "code").most(mostHTTPRequests)
	HTTPHeld = locksByHTTP.gauge("signalbox_http_held_requests",
		"Requests under way: those that wait, streams, and those that are answered now.")
	HTTPStreams = locksByHTTP.gauge("signalbox_http_streams",
		"Streams of events under way.")
	HTTPSessions = locksByHTTP.gauge("signalbox_http_sessions",
		"Sessions of callers that the gateway serves.")
	HTTPMoves = locksByHTTP.counter("signalbox_http_session_moves_total",
		"Sessions that the gateway took over from another gateway, or from another token of their identity.")
)
