package gateway

import (
	"context"
	"errors"
	"log/slog"
	"sync"

	"github.com/ydb-platform/ydb-go-genproto/protos/Ydb"
	"github.com/ydb-platform/ydb-go-genproto/protos/Ydb_Issue"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/protocol"
)

// statuses are YDB's codes of the cluster's, by number. What is 0 has none.
var statuses = [...]Ydb.StatusIds_StatusCode{
	protocol.StatusOK:                 Ydb.StatusIds_SUCCESS,
	protocol.StatusBadRequest:         Ydb.StatusIds_BAD_REQUEST,
	protocol.StatusNotFound:           Ydb.StatusIds_NOT_FOUND,
	protocol.StatusAlreadyExists:      Ydb.StatusIds_ALREADY_EXISTS,
	protocol.StatusPreconditionFailed: Ydb.StatusIds_PRECONDITION_FAILED,
	protocol.StatusBadSession:         Ydb.StatusIds_BAD_SESSION,
	protocol.StatusSessionExpired:     Ydb.StatusIds_SESSION_EXPIRED,
	protocol.StatusAborted:            Ydb.StatusIds_ABORTED,
	protocol.StatusOverloaded:         Ydb.StatusIds_OVERLOADED,
	protocol.StatusUnavailable:        Ydb.StatusIds_UNAVAILABLE,
	protocol.StatusWrongShard:         Ydb.StatusIds_UNAVAILABLE,
	protocol.StatusUnsupported:        Ydb.StatusIds_UNSUPPORTED,
	protocol.StatusUnauthenticated:    Ydb.StatusIds_UNAUTHORIZED,
	protocol.StatusForbidden:          Ydb.StatusIds_UNAUTHORIZED,
	protocol.StatusInternal:           Ydb.StatusIds_INTERNAL_ERROR,
}

// statusOf is the code of an error in a session.
func statusOf(err error) Ydb.StatusIds_StatusCode {
	switch {
	case err == nil:
		return Ydb.StatusIds_SUCCESS
	case errors.Is(err, client.ErrTakenOver):
		return Ydb.StatusIds_BAD_SESSION
	case errors.Is(err, client.ErrOutcomeUnknown) && !errors.Is(err, client.ErrSessionExpired) &&
		!errors.Is(err, client.ErrSessionClosed): // for a session its end counts, not the call that it cut off
		return Ydb.StatusIds_UNDETERMINED
	case errors.Is(err, client.ErrNotRenewed), errors.Is(err, client.ErrUnreachable),
		errors.Is(err, client.ErrClientClosed),
		errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled), errors.Is(err, client.ErrHandshake),
		errors.Is(err, client.ErrOtherCluster):
		return Ydb.StatusIds_UNAVAILABLE
	case errors.Is(err, client.ErrSessionExpired), errors.Is(err, client.ErrSessionClosed):
		return Ydb.StatusIds_SESSION_EXPIRED
	}
	if st := protocol.StatusOf(err); int(st) < len(statuses) && statuses[st] != 0 {
		return statuses[st]
	}
	return Ydb.StatusIds_INTERNAL_ERROR
}

// severityError is the severity of an error in YDB's protocol.
const severityError = 1

// issuesOf returns an error in words, for people.
func issuesOf(err error) []*Ydb_Issue.IssueMessage {
	if err == nil {
		return nil
	}
	return []*Ydb_Issue.IssueMessage{{Message: err.Error(), Severity: severityError}}
}

// maxLoggedMethods bounds the memory for methods that were logged: clients choose the names.
const maxLoggedMethods = 1000

// methodLog refuses methods that the gateway does not have, and logs each once.
type methodLog struct {
	log *slog.Logger

	mu     sync.Mutex
	logged map[string]bool
}

func newMethodLog(log *slog.Logger) *methodLog {
	return &methodLog{log: log, logged: make(map[string]bool)}
}

func (l *methodLog) refuse(method string) error {
	l.mu.Lock()
	first := !l.logged[method] && len(l.logged) < maxLoggedMethods
	if first {
		l.logged[method] = true
	}
	l.mu.Unlock()
	if first {
		l.log.Warn("method is not implemented", "method", method)
	}
	return grpcstatus.Errorf(codes.Unimplemented,
		"%s: this is signalbox, which serves YDB's coordination nodes with their rate limits and directories, and discovery, and nothing else of YDB",
		method)
}
