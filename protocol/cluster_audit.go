package protocol

// Bounds of AuditLog.
const (
	DefaultAuditLines = 100
	MaxAuditLines     = 1000
)

// AuditLogRequest asks one instance for the end of its audit log.
type AuditLogRequest struct {
	Lines int `json:"lines,omitempty"` // at most MaxAuditLines; absent: DefaultAuditLines
}

// AuditLog is the end of an instance's audit log.
type AuditLog struct {
	ID    uint64   `json:"id"`    // of the instance
	Lines []string `json:"lines"` // of its last 256 KiB, as it has them: each is a JSON object; the newest last
}
