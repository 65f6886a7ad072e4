package port

import (
	"net"
	"net/netip"
	"runtime"
	"testing"
)

// TestFree: addresses differ, can be listened on, and again after that.
func TestFree(t *testing.T) {
	seen := map[string]bool{}
	for range 50 {
		a, err := Free()
		if err != nil {
			t.Fatal(err)
		}
		if seen[a] {
			t.Fatalf("%s was given twice", a)
		}
		seen[a] = true
		if p := netip.MustParseAddrPort(a).Port(); runtime.GOOS == "linux" && int(p) < firstEphemeral() && lock(int(p)) {
			t.Errorf("another process may be given %s too", a)
		}
		for range 2 {
			l, err := net.Listen("tcp", a)
			if err != nil {
				t.Fatal(err)
			}
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
}
