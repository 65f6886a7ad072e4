package logstore

import (
	"io"
	"log"
	"testing"

	"go.uber.org/goleak"
)

// A disk in memory cannot tell its free space, and says so at each step to the standard logger.
func TestMain(m *testing.M) {
	log.SetOutput(io.Discard)
	goleak.VerifyTestMain(m)
}
