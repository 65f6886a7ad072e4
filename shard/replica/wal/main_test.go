package wal

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func long() bool { return os.Getenv("SIGNALBOX_LONG") != "" }
