package replica

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/lni/dragonboat/v4/logger"
)

// dragonboat has one logger factory per process, and panics when it is set twice. Its lines do not
// name their host, so they go to the logger of the host opened last.
var (
	engineLoggerOnce sync.Once
	engineLoggerTo   atomic.Pointer[slog.Logger]
)

func routeEngineLogs(to *slog.Logger) {
	engineLoggerTo.Store(to)
	engineLoggerOnce.Do(func() {
		// Another user of dragonboat in this process may have set its own factory; it stays.
		defer func() { _ = recover() }()
		logger.SetLoggerFactory(func(pkg string) logger.ILogger { return engineLogger{pkg} })
	})
}

// engineLogger writes dragonboat's lines two levels lower: info and warnings as debug, errors as
// warnings. A panic is logged as an error and stays a panic: it stops a process whose storage
// cannot be trusted.
type engineLogger struct {
	pkg string
}

func (l engineLogger) SetLevel(logger.LogLevel)      {}
func (l engineLogger) Debugf(string, ...interface{}) {}

func (l engineLogger) Infof(format string, args ...interface{}) {
	l.log(slog.LevelDebug, format, args)
}

func (l engineLogger) Warningf(format string, args ...interface{}) {
	l.log(slog.LevelDebug, format, args)
}

func (l engineLogger) Errorf(format string, args ...interface{}) {
	l.log(slog.LevelWarn, format, args)
}

func (l engineLogger) Panicf(format string, args ...interface{}) {
	l.log(slog.LevelError, format, args)
	// It must be an error: at its start the engine swallows panics with strings and returns
	// nothing.
	panic(fmt.Errorf(format, args...))
}

func (l engineLogger) log(level slog.Level, format string, args []interface{}) {
	to := engineLoggerTo.Load()
	if to == nil || !to.Enabled(context.Background(), level) {
		return
	}
	to.Log(context.Background(), level, "raft engine", "package", l.pkg, "text", fmt.Sprintf(format, args...))
}
