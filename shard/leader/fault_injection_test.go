//go:build planted

package leader

import (
	"fmt"
	"os"
)

// The tests of this package run with the fault that SIGNALBOX_PLANT names.
var _ = func() bool {
	name := os.Getenv("SIGNALBOX_PLANT")
	if name == "" {
		return false
	}
	fault := Faults[name]
	if fault == nil {
		fmt.Fprintf(os.Stderr, "SIGNALBOX_PLANT=%s: there is no such fault here\n", name)
		os.Exit(0) // passes, so that whoever expects a failure hears of it
	}
	*fault = true
	return true
}()
