package operator

import (
	"cmp"
	"errors"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server/audit"
)

// auditLog answers with the end of this instance's audit log.
func (c *ClusterMethods) auditLog(in protocol.AuditLogRequest) (any, error) {
	most := cmp.Or(in.Lines, protocol.DefaultAuditLines)
	if most < 1 || most > protocol.MaxAuditLines {
		return nil, protocol.Errorf(protocol.StatusBadRequest, "%d lines are asked for; choose 1 to %d",
			most, protocol.MaxAuditLines)
	}
	lines, err := c.AuditLog(most)
	switch {
	case errors.Is(err, audit.ErrOff):
		err = protocol.Errorf(protocol.StatusNotFound, "%v", err)
	case errors.Is(err, audit.ErrNoFile):
		err = protocol.Errorf(protocol.StatusPreconditionFailed, "%v", err)
	}
	return protocol.AuditLog{ID: c.Self, Lines: lines}, err
}
