package gateway

import (
	"log/slog"
	"sync"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
)

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
