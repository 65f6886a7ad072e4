package wal

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/signalbox-dev/signalbox/server/servertest/form"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var histories = form.NewHistories()
