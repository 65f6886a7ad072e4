package engine

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
	loggerOnce sync.Once
	loggerTo   atomic.Pointer[slog.Logger]
)

func routeLogs(to *slog.Logger) {
	loggerTo.Store(to)
	loggerOnce.Do(func() {
		// Another user of dragonboat in this process may have set its own factory; it stays.
		defer func() { _ = recover() }()
		logger.SetLoggerFactory(func(pkg string) logger.ILogger { return lineLogger{pkg} })
	})
}

// lineLogger writes dragonboat's lines two levels lower: info and warnings as debug, errors as
// warnings. A panic is logged as an error and stays a panic: it stops a process whose storage
// cannot be trusted.
type lineLogger struct {
	pkg string
}

func (l lineLogger) SetLevel(logger.LogLevel)      {}
func (l lineLogger) Debugf(string, ...interface{}) {}

func (l lineLogger) Infof(format string, args ...interface{}) {
	l.log(slog.LevelDebug, format, args)
}

func (l lineLogger) Warningf(format string, args ...interface{}) {
	l.log(slog.LevelDebug, format, args)
}

func (l lineLogger) Errorf(format string, args ...interface{}) {
	l.log(slog.LevelWarn, format, args)
}

func (l lineLogger) Panicf(format string, args ...interface{}) {
	l.log(slog.LevelError, format, args)
	// It must be an error: at its start the engine swallows panics with strings and returns
	// nothing.
	panic(fmt.Errorf(format, args...))
}

func (l lineLogger) log(level slog.Level, format string, args []interface{}) {
	to := loggerTo.Load()
	if to == nil || !to.Enabled(context.Background(), level) {
		return
	}
	to.Log(context.Background(), level, "raft engine", "package", l.pkg, "text", fmt.Sprintf(format, args...))
}
