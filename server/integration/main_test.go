package integration

import (
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/signalbox-dev/signalbox/server/servertest/leftover"
)

func TestMain(m *testing.M) {
	if os.Getenv(fewFilesEnv) != "" {
		os.Exit(serveWithFewFiles())
	}
	if os.Getenv(damagedEnv) != "" {
		os.Exit(m.Run()) // the engine leaves goroutines behind when it does not start
	}
	goleak.VerifyTestMain(leftover.Check(m),
		// gnet starts a pool of workers when it is imported, and never ends it.
		goleak.IgnoreTopFunction("github.com/panjf2000/ants/v2.(*poolCommon).purgeStaleWorkers"),
		goleak.IgnoreTopFunction("github.com/panjf2000/ants/v2.(*poolCommon).ticktock"),
	)
}
