package httpapi

import (
	"cmp"
	"context"
	_ "embed" // the description of the routes
	"encoding/base64"
	"errors"
	"io"
	"log/slog"
	"mime"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/gateway"
	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server/clienthost"
	"github.com/signalbox-dev/signalbox/server/httpapi/machine"
	"github.com/signalbox-dev/signalbox/server/web"
)

// Bounds of what callers may send, and of what one gateway keeps.
const (
	maxHeader   = 16 << 10 // bytes of headers; longer is 431
	maxURL      = 8 << 10  // bytes of path and query; longer is 414
	maxBody     = 1 << 20  // bytes; longer is 413
	maxHeld     = 12_000   // requests at a time
	maxSessions = 50_000
	maxOwn      = 20_000 // sessions of one identity

	connections = 12_000

	headerTimeout = 5 * time.Second
	bodyTimeout   = 30 * time.Second
	writeTimeout  = 30 * time.Second
	idleTimeout   = 2 * time.Minute
	// answerTimeout is how long a request tries the cluster, beside its wait.
	answerTimeout = 10 * time.Second
	readyTimeout  = 2 * time.Second
	maxWait       = 5 * time.Minute
)

// Config of an API. Client.Endpoints is required.
type Config struct {
	// Client says how to reach the cluster. Its token is not used: each caller shows its own.
	Client client.Config
	// Hosts are the names, without ports, under which callers reach the gateway, beside loopback
	// and the address of the connection. A request for another name is 421.
	Hosts []string
	// TokenRequired refuses requests without a token. It must be set if Client shows the cluster a
	// certificate, whose rights callers would have otherwise.
	TokenRequired bool
	// Log gets what operators need to know. Default: nothing is logged.
	Log *slog.Logger
}

// API serves locks by HTTP. Its methods may be called from any goroutine.
type API struct {
	cfg     Config
	clients *gateway.Clients[*callers]
	held    atomic.Int64  // requests
	calls   atomic.Uint64 // numbers of requests about locks
	counts  counts
	ctx     context.Context
	stop    context.CancelFunc

	mu       sync.Mutex
	sessions map[sessionName]*session
	own      map[string]int // sessions by identity
	reads    map[readKey]*sharedRead
	losses   losses
}

// New makes an API. It connects to the cluster when the first caller comes. The caller closes it.
func New(cfg Config) (*API, error) {
	if len(cfg.Client.Endpoints) == 0 {
		return nil, errors.New("the HTTP gateway has no endpoint; name at least one instance as host:port")
	}
	if len(cfg.Client.Token) > 0 || cfg.Client.GetToken != nil {
		return nil, errors.New("the HTTP gateway has a token of its own; leave it out: each caller shows its own")
	}
	cfg.Log = cmp.Or(cfg.Log, slog.New(slog.DiscardHandler))
	cfg.Client.Name = protocol.HTTPClient // audit lines have via=http by it
	a := &API{cfg: cfg, sessions: make(map[sessionName]*session), own: make(map[string]int),
		reads: make(map[readKey]*sharedRead), losses: losses{of: make(map[sessionName]*sessionLosses)}}
	a.counts.requests, a.counts.refusals = make(map[[3]string]uint64), make(map[string]uint64)
	a.ctx, a.stop = context.WithCancel(context.Background())
	a.clients = gateway.NewClients(a.ctx, gateway.ClientsConfig[*callers]{
		Client: cfg.Client, Purpose: "rate limits of HTTP callers", Logger: cfg.Log,
		State: func(c *gateway.Connection[*callers]) *callers { return &callers{api: a, conn: c} },
		Busy:  func(c *gateway.Connection[*callers]) bool { return c.State.sessions.Load() > 0 },
		Ends:  func(c *gateway.Connection[*callers]) { c.State.tokenEnds() },
	})
	return a, nil
}

// Server serves an API with limits that hold against slow and hostile callers. The caller listens,
// calls Serve with a LimitListener, and closes it.
func Server(a *API, log *slog.Logger) *http.Server {
	srv := web.Server(a, web.Timeouts{Header: headerTimeout, Write: writeTimeout, Idle: idleTimeout}, maxHeader, log)
	srv.DisableGeneralOptionsHandler = true
	srv.HTTP2 = &http.HTTP2Config{MaxConcurrentStreams: 256}
	return srv
}

// LimitListener accepts at most 12,000 connections at a time, and no more than half of the files
// that the process may open, see web.LimitListener.
func LimitListener(l net.Listener) net.Listener {
	most := connections
	var files syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files) == nil && uint64(files.Cur)/2 < connections {
		most = int(files.Cur / 2)
	}
	return web.LimitListener(l, most, "this gateway has too many connections; use another one")
}

// Stop ends waits with 503, and refuses new requests: their callers go on at another gateway.
func (a *API) Stop() { a.stop() }

// Close is Stop, and leaves the sessions to the cluster.
func (a *API) Close() {
	a.Stop()
	a.clients.Close()
}

// route is one of the API's.
type route struct {
	method string
	path   string // with a slash at the end: a name follows
	params []string
	open   bool   // without credentials
	body   bool   // it has one
	kind   string // media type of its answer; empty: JSON
	stream bool   // it answers with events, too
	reads  bool   // it reads the node
	own    bool   // it is about a session, which must be there
	serve  func(*call) error
}

// openAPIDocument describes the routes. Tests write it from the table, and hold the answers to it.
//
//go:embed openapi.json
var openAPIDocument []byte

// consistency is a parameter of reads.
const consistency = "consistency"

var routes = []route{
	{method: "POST", path: "/v1/locks/", body: true, stream: true, serve: acquireLock,
		params: []string{"mode", "count", "limit", "wait", "leave", "ttl",
			"holder", "priority", "key", "label", "slot", "hold"}},
	{method: "DELETE", path: "/v1/locks/", own: true, serve: releaseLock, params: []string{"token"}},
	{method: "GET", path: "/v1/locks/", reads: true, serve: getLock, params: []string{consistency, "wait"}},
	{method: "GET", path: "/v1/locks", reads: true, serve: listLocks,
		params: []string{"prefix", "after", "limit", consistency}},
	{method: "GET", path: "/v1/session", own: true, serve: getSession},
	{method: "DELETE", path: "/v1/session", own: true, serve: endSession},
	{method: "POST", path: "/v1/session/keepalive", own: true, serve: keepAlive, params: []string{"holding"}},
	{method: "GET", path: "/v1/config/", reads: true, kind: bytesKind, serve: getConfig,
		params: []string{consistency, "wait"}},
	{method: "PUT", path: "/v1/config/", body: true, serve: changeConfig},
	{method: "DELETE", path: "/v1/config/", serve: changeConfig},
	{method: "GET", path: "/v1/services/", serve: getService, params: []string{"zone", "wait"}},
	{method: "POST", path: "/v1/limits/", serve: takeUnits, params: []string{"units", "wait"}},
	{method: "GET", path: "/v1/openapi.json", open: true, serve: func(x *call) error {
		writeBytes(x.w, http.StatusOK, jsonKind, openAPIDocument)
		return nil
	}},
	{method: "GET", path: "/v1/ready", open: true, serve: ready},
}

// Headers of our own.
const (
	sessionHeader = "Signalbox-Session"
	tokenHeader   = "Signalbox-Token"
)

// call is one request under way.
type call struct {
	api     *API
	route   *route
	w       http.ResponseWriter
	r       *http.Request
	began   time.Time
	ctx     context.Context // of the tries at the cluster, without the wait
	query   url.Values
	node    string
	name    string // that the path names
	body    []byte
	streams bool // events are asked for
	status  int  // of the answer
	conn    *gateway.Connection[*callers]
	n       *client.Node // of routes that read it

	s          *session           // nil: it is not about one
	confirm    bool               // the cluster has not said yet that this gateway serves it
	confirming chan error         // gets what the cluster says; nil: it is not asked yet
	id         machine.Call       // of an acquire
	replies    chan machine.Reply // what the machine says to it
}

// ServeHTTP implements http.Handler.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	x := &call{api: a, w: w, r: r, began: time.Now(), status: http.StatusOK}
	defer web.KeepConnection(r.Context())()
	h := w.Header()
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	_ = http.NewResponseController(w).SetWriteDeadline(time.Time{}) // it may wait for longer than an answer may take
	if r.ContentLength != 0 {                                       // of a refused request, too: net/http reads its body before it answers
		_ = http.NewResponseController(w).SetReadDeadline(x.began.Add(bodyTimeout))
	}
	var p *problem
	defer func() {
		a.held.Add(-1)
		a.counts.answered(x, p)
	}()
	if a.held.Add(1) > maxHeld {
		p = problemf(http.StatusServiceUnavailable, "overloaded",
			"this gateway holds %d requests, the most it may; use another one", maxHeld)
	} else if err := x.serve(); err != nil {
		switch p = problemOf(err); {
		case p.status == http.StatusServiceUnavailable && a.ctx.Err() != nil:
			p = errClosing
		case errors.Is(err, client.ErrClientClosed): // a connection in use is closed at its token's end alone
			p = errTokenEnds
		}
	}
	if p != nil {
		x.status = p.status
		p.write(w)
	}
}

// serve answers. A caller that closes its side of the connection alone still reads the answer, so
// what its request does at the cluster does not end with r's context.
func (x *call) serve() (err error) {
	if err := x.check(); err != nil {
		return err
	}
	defer x.begin()()
	if x.route.open {
		return x.route.serve(x)
	}
	token, release, err := x.connect()
	defer func() { x.api.clients.CallEnded(token, err) }()
	if err != nil {
		return err
	}
	defer release()
	if err = x.readBody(); err != nil {
		return err
	}
	defer x.begin()() // the body had its own time
	if err = x.prepare(); err != nil {
		return err
	}
	if x.route.own {
		defer x.s.leave()
	}
	return x.route.serve(x)
}

// check refuses what can be refused without credentials.
func (x *call) check() error {
	for _, check := range []func() error{x.guard, x.find, x.readAccept, x.readQuery} {
		if err := check(); err != nil {
			return err
		}
	}
	if x.api.ctx.Err() != nil {
		return errClosing
	}
	return nil
}

// connect gives the request the connection of its token.
func (x *call) connect() (token string, release func(), err error) {
	if token, err = tokenOf(x.r); err != nil {
		return "", nil, err
	}
	if token == "" && x.api.cfg.TokenRequired {
		return "", nil, problemf(http.StatusUnauthorized, "unauthenticated",
			"no token is shown; send it as Authorization: Bearer TOKEN")
	}
	x.conn, release, err = x.api.clients.Use(x.ctx, token, clienthost.Of(x.r.RemoteAddr))
	return token, release, err
}

// begin begins the time in which the request tries the cluster.
func (x *call) begin() (end context.CancelFunc) {
	x.ctx, end = context.WithTimeout(context.WithoutCancel(x.r.Context()), answerTimeout)
	return end
}

// prepare opens what the route needs.
func (x *call) prepare() (err error) {
	if x.route.reads {
		x.n, err = x.conn.Client.Node(x.ctx, x.node)
	}
	if err == nil && x.route.own {
		err = x.open(0, "")
	}
	return err
}

// guard refuses what no route may see.
func (x *call) guard() error {
	r := x.r
	switch {
	case r.Host == "":
		return badRequest("the request has no Host")
	case !web.KnownHost(r.Host, x.api.cfg.Hosts) && !isOwnAddress(r):
		return problemf(http.StatusMisdirectedRequest, "misdirected",
			"this gateway is not reached under the name %q; use its address, or start it with --http-host", r.Host)
	case r.Header.Get("Origin") != "", !slices.Contains([]string{"", "none"}, r.Header.Get("Sec-Fetch-Site")):
		return problemf(http.StatusForbidden, "browser", "requests of web pages are refused; call from a program")
	case len(r.RequestURI) > maxURL:
		return problemf(http.StatusRequestURITooLong, "uri_too_long",
			"path and query have %d bytes; at most %d are allowed", len(r.RequestURI), maxURL)
	case len(r.Header["Authorization"]) > 1, len(r.Header[sessionHeader]) > 1:
		return badRequest("Authorization and Signalbox-Session may come once each")
	case r.ContentLength > maxBody:
		return errLong
	case r.Header.Get("Content-Encoding") != "":
		return problemf(http.StatusUnsupportedMediaType, "unsupported_media_type",
			"send the data as it is, without Content-Encoding")
	}
	return nil
}

// isOwnAddress reports whether the Host is the address on which the connection was accepted.
func isOwnAddress(r *http.Request) bool {
	local, ok := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
	ip := net.ParseIP(web.HostName(r.Host))
	return ok && ip != nil && ip.Equal(local.IP)
}

// find finds the route, and the name in the path. Paths are taken as they come, never cleaned.
func (x *call) find() error {
	path, method := x.r.URL.EscapedPath(), x.r.Method
	if method == http.MethodHead {
		method = http.MethodGet // net/http leaves the body out
	}
	var allow []string
	for i := range routes {
		p := &routes[i]
		rest, ok := strings.CutPrefix(path, p.path)
		if !ok || rest != "" && !strings.HasSuffix(p.path, "/") {
			continue
		}
		if p.method != method {
			if allow = append(allow, p.method); p.method == http.MethodGet {
				allow = append(allow, http.MethodHead)
			}
			continue
		}
		x.route = p
		return x.readName(rest)
	}
	if allow == nil && slices.ContainsFunc(routes, func(p route) bool { return p.method == method }) {
		return problemf(http.StatusNotFound, "not_found", "there is nothing at %q; see /v1/locks/NAME", path)
	}
	x.w.Header().Set("Allow", cmp.Or(strings.Join(allow, ", "), "GET, HEAD, POST, PUT, DELETE"))
	return problemf(http.StatusMethodNotAllowed, "method_not_allowed", "%s is not possible at %q", x.r.Method, path)
}

// readName reads the name in the path behind a route's own part.
func (x *call) readName(rest string) error {
	if !strings.HasSuffix(x.route.path, "/") {
		return nil
	}
	if rest == "" {
		return nil // name64 of the query may have it
	}
	name, err := url.PathUnescape(rest)
	if err != nil {
		return badRequest("the name in the path is not percent-encoded well")
	}
	for segment := range strings.SplitSeq(name, "/") {
		if segment == "" || segment == "." || segment == ".." {
			return badRequest("the name %q has the segment %q; leave it out, or give the name as name64", name,
				segment)
		}
	}
	x.name = name
	return nil
}

// readAccept finds out which form of answer the caller takes.
func (x *call) readAccept() error {
	given := strings.Join(x.r.Header.Values("Accept"), ",")
	if given == "" {
		return nil
	}
	kind, ok := cmp.Or(x.route.kind, jsonKind), false
	for part := range strings.SplitSeq(given, ",") {
		name, params, err := mime.ParseMediaType(part)
		q, bad := strconv.ParseFloat(cmp.Or(params["q"], "1"), 64)
		if err != nil || bad != nil || q <= 0 {
			continue
		}
		main, _, _ := strings.Cut(kind, "/")
		x.streams = x.streams || name == eventStream && x.route.stream
		ok = ok || x.streams || slices.Contains([]string{"*/*", main + "/*", kind}, name)
	}
	if !ok {
		return problemf(http.StatusNotAcceptable, "not_acceptable", "the answer is %s, which Accept: %s leaves out",
			kind, given)
	}
	return nil
}

// readQuery checks the parameters.
func (x *call) readQuery() error {
	query, err := url.ParseQuery(x.r.URL.RawQuery)
	if err != nil {
		return badRequest("the query is not encoded well: %s", err)
	}
	named := strings.HasSuffix(x.route.path, "/")
	for key, values := range query {
		known := slices.Contains(x.route.params, key) || key == "node" && !x.route.open || key == "name64" && named
		several := key == "label" || key == "slot" || key == "holding"
		switch {
		case !known:
			return badRequest("the parameter %q is not known here; known are %s", key,
				strings.Join(append(x.route.params, "node"), ", "))
		case slices.Contains(values, ""):
			return badRequest("the parameter %q is empty; give it a value, or leave it out", key)
		case len(values) > 1 && !several:
			return badRequest("the parameter %q comes %d times; give it once", key, len(values))
		}
		if err := checkValue(key, values[0]); err != nil {
			return err
		}
	}
	x.query, x.node = query, cmp.Or(query.Get("node"), "/default")
	if name := query.Get("name64"); name != "" {
		b, err := base64.RawURLEncoding.DecodeString(strings.TrimRight(name, "="))
		if err != nil || x.name != "" {
			return badRequest("name64 is not base64url, or the path has a name too")
		}
		x.name = string(b)
	}
	if named && x.name == "" {
		return badRequest("the path has no name; write it behind %s", x.route.path)
	}
	return nil
}

// readBody reads the whole body: net/http notices that a caller has hung up only behind it.
func (x *call) readBody() error {
	if x.r.ContentLength == 0 {
		return nil
	}
	b, err := io.ReadAll(http.MaxBytesReader(x.w, x.r.Body, maxBody))
	var long *http.MaxBytesError
	switch {
	case errors.As(err, &long):
		return errLong
	case errors.Is(err, os.ErrDeadlineExceeded):
		return badRequest("the body did not come within %s, so nothing was done; send it faster", bodyTimeout)
	case err != nil:
		return badRequest("the body did not come whole, so nothing was done; send it again")
	case len(b) > 0 && !x.route.body:
		return badRequest("this request has no body; parameters are in the query")
	}
	_ = http.NewResponseController(x.w).SetReadDeadline(time.Time{})
	x.body = b
	return nil
}

// tokenOf is the token that a request shows; empty: none.
func tokenOf(r *http.Request) (string, error) {
	given := r.Header.Get("Authorization")
	if given == "" {
		return "", nil
	}
	if _, password, ok := r.BasicAuth(); ok {
		return password, nil
	}
	scheme, token, _ := strings.Cut(given, " ")
	if token = strings.TrimSpace(token); !strings.EqualFold(scheme, "Bearer") || token == "" {
		return "", problemf(http.StatusUnauthorized, "unauthenticated",
			"Authorization is neither Bearer TOKEN nor Basic with the token as password")
	}
	return token, nil
}

// waited is how long the request has been at the gateway. It is rounded down: callers add it to the
// time at which they sent the request.
func (x *call) waited() int64 { return time.Since(x.began).Milliseconds() }

// report answers with a document about the session, and how long that may be relied on.
func (x *call) report(status int, d document, leases ...*client.Lease) error {
	if err := x.belief(d, leases...); err != nil {
		return err
	}
	return x.write(status, d)
}

// write answers with a document.
func (x *call) write(status int, d document) error {
	x.status = status
	writeBytes(x.w, status, jsonKind, encode(d))
	return nil
}

// ready reports whether the cluster answers.
func ready(x *call) error {
	ctx, cancel := context.WithTimeout(x.ctx, readyTimeout)
	defer cancel()
	conn, release, err := x.api.clients.Use(ctx, "", clienthost.Of(x.r.RemoteAddr))
	if err == nil {
		defer release()
		_, err = conn.Client.Node(ctx, "/default")
	}
	if err != nil && !gateway.IsUnauthenticated(err) && !errors.Is(err, client.ErrNotFound) &&
		!errors.Is(err, client.ErrForbidden) {
		return unavailable("the cluster does not answer: %s", err)
	}
	return x.write(http.StatusOK, document{"ready": true})
}
