package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// A folder of backups has a file for each, named by the cluster's id and the time at which it was
// begun, such as signalbox-7f3a-20260102T030405Z.backup. So their names sort by time.

const backupTime = "20060102T150405Z"

// backupName is the name of a cluster's backup that is begun at now.
func backupName(cluster string, now time.Time) string {
	return fmt.Sprintf("signalbox-%s-%s.backup", cluster, now.UTC().Format(backupTime))
}

// isFolder reports whether a backup goes into a folder, under a name of its own.
func isFolder(path string) bool { return strings.HasSuffix(path, "/") }

// removeOldBackups removes the oldest backups of a cluster from a folder, so that keep of them are
// left, and returns their names. It never removes the new one, however the clock is set, nor
// anything else in the folder.
func removeOldBackups(dir, cluster, newest string, keep int) (removed []string, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	form := regexp.MustCompile(`^signalbox-` + regexp.QuoteMeta(cluster) + `-\d{8}T\d{6}Z\.backup$`)
	var older []string
	for _, e := range entries {
		if e.Type().IsRegular() && form.MatchString(e.Name()) && e.Name() != newest {
			older = append(older, e.Name())
		}
	}
	slices.Sort(older)
	for _, name := range older[:max(0, len(older)-(keep-1))] {
		if err := os.Remove(filepath.Join(dir, name)); err != nil {
			return removed, err
		}
		removed = append(removed, name)
	}
	return removed, nil
}
