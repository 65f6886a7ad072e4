package httpapi

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/gateway"
	"github.com/signalbox-dev/signalbox/protocol"
)

// problem is an error as callers see it, by RFC 9457.
type problem struct {
	status int
	code   string
	detail string
	more   map[string]any // beside the members that all have
	retry  time.Duration  // -1: at once; 0: it is not said; else at least so long
}

// Media types of answers.
const (
	jsonKind    = "application/json"
	problemKind = "application/problem+json"
	bytesKind   = "application/octet-stream"
)

// notAcquired is a code.
const notAcquired = "not_acquired"

func (p *problem) Error() string { return p.detail }

func problemf(status int, code, format string, args ...any) *problem {
	return &problem{status: status, code: code, detail: fmt.Sprintf(format, args...)}
}

func badRequest(format string, args ...any) *problem {
	return problemf(http.StatusBadRequest, "bad_request", format, args...)
}

func unavailable(format string, args ...any) *problem {
	return problemf(http.StatusServiceUnavailable, "unavailable", format, args...)
}

var (
	errExpired = problemf(http.StatusGone, "session_expired",
		"there is no session of this name; give ttl with an acquire to start one, under a new name if this one has ended")
	errMoved = problemf(http.StatusServiceUnavailable, "session_moved",
		"the session is served by another gateway now; repeat the request")
	errClosing = &problem{status: http.StatusServiceUnavailable, code: "closing", retry: -1,
		detail: "the gateway stops; repeat the request at another one"}
	errAborted = problemf(http.StatusConflict, "aborted", "a newer request about this name took the place of this one")
	errLost    = problemf(http.StatusGone, "lease_lost", "the session does not hold it any more; acquire it again")
)

// problemOf is the problem that an error of the SDK is.
func problemOf(err error) *problem {
	var p *problem
	code := func(status int, code string) *problem { return problemf(status, code, "%s", err) }
	switch {
	case errors.As(err, &p):
		return p
	case errors.Is(err, client.ErrTakenOver):
		return errMoved
	case errors.Is(err, client.Unauthenticated):
		return code(http.StatusUnauthorized, "unauthenticated")
	case errors.Is(err, client.Forbidden):
		return code(http.StatusForbidden, "forbidden")
	case errors.Is(err, client.ErrNotRenewed), errors.Is(err, client.ErrClientClosed),
		errors.Is(err, client.ErrUnreachable),
		errors.Is(err, client.Unavailable), errors.Is(err, client.ErrHandshake):
		return unavailable("the cluster does not answer: %s", err)
	case errors.Is(err, client.ErrOutcomeUnknown):
		return code(http.StatusGatewayTimeout, "outcome_unknown")
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return unavailable("the cluster did not answer within %s; repeat the request", answerTimeout)
	case errors.Is(err, client.ErrSessionExpired), errors.Is(err, client.ErrSessionClosed),
		protocol.StatusOf(err) == protocol.StatusSessionExpired:
		return errExpired
	case errors.Is(err, client.ErrLeaseLost):
		return problemf(http.StatusGone, "lease_lost", "%s; acquire it again", err)
	case errors.Is(err, client.Aborted):
		return code(http.StatusConflict, "aborted")
	case errors.Is(err, client.NotFound):
		return code(http.StatusNotFound, "not_found")
	case errors.Is(err, client.BadRequest):
		return code(http.StatusBadRequest, "bad_request")
	case errors.Is(err, client.PreconditionFailed), errors.Is(err, client.AlreadyExists):
		return code(http.StatusConflict, "precondition_failed")
	case errors.Is(err, client.Overloaded):
		return code(http.StatusTooManyRequests, "overloaded")
	case errors.Is(err, client.Unsupported):
		return code(http.StatusNotImplemented, "unsupported")
	case gateway.IsUnauthenticated(err):
		return code(http.StatusUnauthorized, "unauthenticated")
	}
	return problemf(http.StatusInternalServerError, "internal", "%s", err)
}

// write answers with the problem.
func (p *problem) write(w http.ResponseWriter) {
	h := w.Header()
	switch {
	case p.retry > 0:
		h.Set("Retry-After", strconv.FormatInt(int64((p.retry+time.Second-1)/time.Second), 10))
	case p.retry < 0:
		h.Set("Retry-After", "0")
	case p.status == http.StatusServiceUnavailable, p.status == http.StatusGatewayTimeout, p.status == http.StatusTooManyRequests:
		h.Set("Retry-After", strconv.Itoa(1+rand.N(5))) // those that were refused together do not come again together
	}
	if p.status == http.StatusUnauthorized {
		h.Set("WWW-Authenticate", `Bearer realm="signalbox"`)
	}
	writeBytes(w, p.status, problemKind, encode(p.document()))
}

func (p *problem) document() document {
	d := document{"type": "urn:signalbox:error:" + p.code, "title": http.StatusText(p.status),
		"status": p.status, "code": p.code, "detail": p.detail}
	maps.Copy(d, p.more)
	return d
}
