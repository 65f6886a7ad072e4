package main

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

// TestRemoveOldBackups: the newest stay, and so does what is no backup of the cluster.
func TestRemoveOldBackups(t *testing.T) {
	at := func(day int) string { return backupName("c-1", time.Date(2026, 1, day, 3, 4, 5, 0, time.UTC)) }
	others := []string{
		backupName("c-2", time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)), // of another cluster
		backupName("xc-1", time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)),
		at(1) + ".gz", ".signalbox-c-1-20200101T000000Z.backup.1.part", "notes",
	}
	for _, c := range []struct {
		name   string
		newest string
		keep   int
		want   []string // are left, of days 1 to 4
	}{
		{"two", at(4), 2, []string{at(3), at(4)}},
		{"one", at(4), 1, []string{at(4)}},
		{"more than there are", at(4), 9, []string{at(1), at(2), at(3), at(4)}},
		{"the clock went back", at(1), 2, []string{at(1), at(4)}},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			for _, name := range append(slices.Clone(others), at(1), at(2), at(3), at(4)) {
				if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			old := backupName("c-1", time.Date(2019, 1, 1, 0, 0, 0, 0, time.UTC))
			if err := os.Mkdir(filepath.Join(dir, old), 0o700); err != nil { // a folder is no backup
				t.Fatal(err)
			}
			removed, err := removeOldBackups(dir, "c-1", c.newest, c.keep)
			if err != nil {
				t.Fatal(err)
			}
			var left []string
			entries, err := os.ReadDir(dir)
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range entries {
				left = append(left, e.Name())
			}
			want := append(append(slices.Clone(others), old), c.want...)
			slices.Sort(want)
			if !slices.Equal(left, want) || len(removed) != 4-len(c.want) {
				t.Errorf("left %q, removed %q; want left %q", left, removed, want)
			}
		})
	}
}
