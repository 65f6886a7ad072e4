package shardhost

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
)

// expiredLog writes a line a second for each node whose sessions expired, however many there were,
// with how the first of them ended.
// Shards add sessions from their apply goroutines; run writes the lines.
type expiredLog struct {
	began chan struct{} // has room for one; filled by the first session of a line

	mu     sync.Mutex
	byNode map[uint64]expiredSessions
}

type expiredSessions struct {
	count, first uint64
	how          *protocol.Ending // of the first
}

func newExpiredLog() *expiredLog {
	return &expiredLog{began: make(chan struct{}, 1), byNode: make(map[uint64]expiredSessions)}
}

// add counts a session that expired.
func (l *expiredLog) add(node, session uint64, how *protocol.Ending) {
	l.mu.Lock()
	x := l.byNode[node]
	if x.count++; x.count == 1 {
		x.first, x.how = session, how
	}
	l.byNode[node] = x
	l.mu.Unlock()
	select {
	case l.began <- struct{}{}:
	default:
	}
}

// run writes lines until ctx ends, and then the rest. path returns a node's path.
func (l *expiredLog) run(ctx context.Context, log *slog.Logger, path func(node uint64) string) {
	for ctx.Err() == nil {
		select {
		case <-l.began:
		case <-ctx.Done():
		}
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
		}
		l.write(log, path)
	}
}

func (l *expiredLog) write(log *slog.Logger, path func(node uint64) string) {
	l.mu.Lock()
	all := l.byNode
	l.byNode = make(map[uint64]expiredSessions)
	l.mu.Unlock()
	for _, node := range slices.Sorted(maps.Keys(all)) {
		x := all[node]
		log.Info("sessions expired", "node", path(node), "count", x.count, "first", x.first,
			"connection", x.how.Link, "silent_ms", x.how.Silent, "stood_still_ms", x.how.Stood, "same_leader", x.how.Steady)
	}
}
