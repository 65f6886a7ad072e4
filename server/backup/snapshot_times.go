package backup

import (
	"encoding/json"
	"errors"
	"io/fs"
	"path/filepath"
	"strconv"
	"time"

	"github.com/signalbox-dev/signalbox/server/file"
)

// backupTimesFile keeps when each shard was last read for a backup, in seconds since 1970 by the
// shard's id, so that a restart does not forget it. It is for monitoring: a missing or broken file
// says that there was no backup.
const (
	backupTimesFile    = "last-backups.json"
	maxBackupTimesFile = 1 << 20
)

// completed notes that the last byte of a shard's snapshot was read.
func (b *Snapshots) completed(x *shardSnapshot) {
	b.mu.Lock()
	defer b.mu.Unlock()
	x.fetched = true
	b.loadTimes()
	b.times[strconv.FormatUint(x.shard, 10)] = b.cfg.Clock.Wall().Unix()
	if b.cfg.Memory {
		return
	}
	text, err := json.Marshal(b.times)
	if err == nil {
		err = file.Write(b.timesPath(), text)
	}
	if err != nil {
		b.cfg.Logger.Warn("time of a backup is not kept", "shard", x.shard, "error", err)
	}
}

func (b *Snapshots) timesPath() string { return filepath.Join(b.cfg.Dir, backupTimesFile) }

// loadTimes reads the file once. The caller holds mu.
func (b *Snapshots) loadTimes() {
	if b.times != nil {
		return
	}
	b.times = map[string]int64{}
	if b.cfg.Memory {
		return
	}
	text, err := file.Read(b.timesPath(), maxBackupTimesFile)
	if err == nil {
		err = json.Unmarshal(text, &b.times)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		b.cfg.Logger.Warn("times of former backups are unknown", "error", err)
	}
	if b.times == nil { // the file says null
		b.times = map[string]int64{}
	}
}

// Age is how long ago a backup read the whole shard from this instance; false: none has.
func (b *Snapshots) Age(shard uint64) (time.Duration, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.loadTimes()
	at, ok := b.times[strconv.FormatUint(shard, 10)]
	if !ok {
		return 0, false
	}
	return max(0, time.Duration(b.cfg.Clock.Wall().Unix()-at)*time.Second), true
}
