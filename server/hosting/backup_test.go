package hosting

import (
	"errors"
	"io"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server/membership"
	"github.com/signalbox-dev/signalbox/shard/meta"
	"github.com/signalbox-dev/signalbox/shard/replica"
)

// TestBackupBounds: snapshots are bounded, and those that nobody fetches are removed.
func TestBackupBounds(t *testing.T) {
	clock := replica.NewManualClock(time.Unix(0, 0))
	var running sync.WaitGroup
	defer running.Wait()
	h := New(t.Context(), Config{
		Meta: membership.NewMeta(clock), Clock: clock, Logger: slog.New(slog.NewTextHandler(io.Discard, nil)), Memory: true, Go: running.Go,
	})
	b := h.Backups
	for range maxBackups {
		if _, err := b.begin(meta.MetaShardID); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := b.begin(meta.MetaShardID); !errors.Is(err, protocol.StatusOverloaded) {
		t.Errorf("one too many: %v", err)
	}
	clock.Advance(2 * backupIdle)
	if x := b.find("none", meta.MetaShardID); x != nil {
		t.Errorf("found %+v", x)
	}
	if _, err := b.begin(meta.MetaShardID); err != nil {
		t.Errorf("after the others were left alone: %v", err)
	}
}
