package wal

import (
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// TestSyncsExactly: the thread that has synced sleeps no longer than it asks for.
func TestSyncsExactly(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	before, err := unix.PrctlRetInt(unix.PR_GET_TIMERSLACK, 0, 0, 0, 0)
	if err != nil {
		t.Skip(err)
	}
	defer func() { _ = unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(before), 0, 0, 0) }()
	if err := unix.Prctl(unix.PR_SET_TIMERSLACK, 50_000, 0, 0, 0); err != nil {
		t.Fatal(err)
	}
	l := openOn(t, newDisk())
	save(t, l, updateOf(key{1, 1}, 1, entriesOf(1, 1, 1, 5)))
	if n, _ := unix.PrctlRetInt(unix.PR_GET_TIMERSLACK, 0, 0, 0, 0); n != 1 {
		t.Errorf("its timer slack is %d ns; want 1", n)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
}
