package gateway

import (
	"context"
	"errors"

	"github.com/ydb-platform/ydb-go-genproto/protos/Ydb"
	"github.com/ydb-platform/ydb-go-genproto/protos/Ydb_Issue"

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
		!errors.Is(err, client.ErrSessionClosed): // of a session the end counts, not what it cut off
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

// severityError is that of an issue in YDB's protocol.
const severityError = 1

// issuesOf says what is wrong, to people.
func issuesOf(err error) []*Ydb_Issue.IssueMessage {
	if err == nil {
		return nil
	}
	return []*Ydb_Issue.IssueMessage{{Message: err.Error(), Severity: severityError}}
}
