package httpapi

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/signalbox-dev/signalbox/client"
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
	errTokenEnds = problemf(http.StatusUnauthorized, "unauthenticated",
		"the token has expired; repeat the request with the next one")
	errAborted = problemf(http.StatusConflict, "aborted", "a newer request about this name took the place of this one")
	errLong    = problemf(http.StatusRequestEntityTooLarge, "content_too_large",
		"the body has more than %d bytes; send less", maxBody)
	errLost = problemf(http.StatusGone, "lease_lost", "the session does not hold it any more; acquire it again")
)

// refusals are the problems that errors of the SDK are. The first that fits counts.
var refusals = []struct {
	status int
	code   string
	text   string // around the error
	errs   []error
}{
	{errMoved.status, errMoved.code, errMoved.detail, []error{client.ErrTakenOver}},
	{401, "unauthenticated", "%s; send a valid token as Authorization: Bearer TOKEN", []error{client.ErrUnauthenticated, protocol.StatusUnauthenticated}},
	{403, "forbidden", "%s", []error{client.ErrForbidden}},
	{503, "unavailable", "the cluster does not answer: %s", []error{client.ErrNotRenewed, client.ErrClientClosed,
		client.ErrUnreachable, client.ErrUnavailable, client.ErrHandshake}},
	{504, "outcome_unknown", "%s", []error{client.ErrOutcomeUnknown}},
	{503, "unavailable", "the cluster did not answer in time; repeat the request: %s",
		[]error{context.DeadlineExceeded, context.Canceled}},
	{errExpired.status, errExpired.code, "%s", []error{client.ErrSessionExpired, client.ErrSessionClosed,
		protocol.StatusSessionExpired}},
	{errLost.status, errLost.code, "%s; acquire it again", []error{client.ErrLeaseLost}},
	{409, "aborted", "%s", []error{client.ErrAborted}},
	{404, "not_found", "%s", []error{client.ErrNotFound}},
	{400, "bad_request", "%s", []error{client.ErrBadRequest}},
	{409, "precondition_failed", "%s", []error{client.ErrPreconditionFailed, client.ErrAlreadyExists}},
	{429, "overloaded", "%s", []error{client.ErrOverloaded}},
	{501, "unsupported", "%s", []error{client.ErrUnsupported}},
}

// words say refusals of the cluster in terms of this API, where the cluster speaks of the SDK's.
var words = map[protocol.Refusal]string{
	protocol.RefusalNoSemaphore:  "there is no semaphore of this name; give limit to make it, or mode instead of count for a lock",
	protocol.RefusalEphemeral:    "it is a lock that is held or waited for; acquire it with mode instead of count, or later",
	protocol.RefusalPersistent:   "it is a semaphore; acquire it with count instead of mode",
	protocol.RefusalOtherVersion: "the configuration has another version; read it, and decide again",
}

// problemOf is the problem that an error is.
func problemOf(err error) *problem {
	if p, ok := errors.AsType[*problem](err); ok {
		return p
	}
	for _, r := range refusals {
		if slices.ContainsFunc(r.errs, func(is error) bool { return errors.Is(err, is) }) {
			text := cmp.Or(words[protocol.RefusalOf(err)], err.Error())
			p := &problem{status: r.status, code: r.code, detail: strings.Replace(r.text, "%s", text, 1)}
			if loss, ok := errors.AsType[*client.Loss](err); ok && r.code != errMoved.code {
				return p.because(loss)
			}
			return p
		}
	}
	return problemf(http.StatusInternalServerError, "internal", "%s", err)
}

// because is the problem with why it came to that, if that is known.
func (p *problem) because(loss *client.Loss) *problem {
	if loss == nil {
		return p
	}
	why, own := *p, *loss
	own.Steps, own.Advice = slices.Clone(loss.Steps), ofGateway.Replace(loss.Advice)
	for i, step := range own.Steps {
		own.Steps[i] = ofGateway.Replace(step)
	}
	if loss.Stood > 0 { // else it may have an operator's words
		why.detail = ofGateway.Replace(p.detail)
	}
	why.more = document{"loss": &own}
	maps.Copy(why.more, p.more)
	return &why
}

// ofGateway has words of the SDK, which runs in the gateway, not speak of the caller's process.
var ofGateway = strings.NewReplacer("this process", "the gateway's process", "this machine", "the gateway's machine",
	"the process ran", "the gateway's process ran", "the machine woke", "the gateway's machine woke")

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
