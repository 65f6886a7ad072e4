package logstore

import (
	"io"
	"log"
	"testing"

	"github.com/lni/dragonboat/v4/logger"
	"go.uber.org/goleak"
)

// The engine's storage writes to the standard logger, and says at each step that a disk in memory
// cannot tell its free space.
func TestMain(m *testing.M) {
	log.SetOutput(io.Discard)
	logger.GetLogger("logdb").SetLevel(logger.ERROR)
	goleak.VerifyTestMain(m)
}
