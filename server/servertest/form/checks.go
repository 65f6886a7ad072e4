package form

import (
	"flag"
	"strconv"
	"testing"
)

// Checks sets how many random inputs each property of package rapid is checked with, until the test
// ends. The flag -rapid.checks goes before.
func Checks(t testing.TB, n int) {
	checks := flag.Lookup("rapid.checks")
	old := checks.Value.String()
	if old != checks.DefValue {
		return
	}
	if err := checks.Value.Set(strconv.Itoa(n)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = checks.Value.Set(old) })
}
