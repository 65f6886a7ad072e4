package replica

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/lni/dragonboat/v4/logger"
)

// dragonboat has one logger factory for the whole process and panics when it is set twice. Its lines do not say which host they are about, so they go to
// the logger of the host opened last.
var (
	engineLoggerOnce sync.Once
	engineLoggerTo   atomic.Pointer[slog.Logger]
	enginePanicsTo   atomic.Pointer[func(error)]
)

// storePackages are those of the engine's log store.
var storePackages = map[string]bool{"logdb": true, "pebblekv": true}

// reportEnginePanics has the engine's panics about its log store, which come on its own goroutines, reported by fail, which does not return. The same goes for
// them as for the lines: they are reported by the host that was opened last.
func reportEnginePanics(fail func(error)) *func(error) {
	enginePanicsTo.Store(&fail)
	return &fail
}

func routeEngineLogs(to *slog.Logger) {
	engineLoggerTo.Store(to)
	engineLoggerOnce.Do(func() {
		// Another user of dragonboat in this process may have set its own factory; theirs stays.
		defer func() { _ = recover() }()
		logger.SetLoggerFactory(func(pkg string) logger.ILogger { return engineLogger{pkg} })
	})
}

// engineLogger writes dragonboat's lines two levels lower than they are called there: its info and warnings are at debug, its errors at warn. A panic
// is an error, and stays a panic: it is how dragonboat stops a process whose storage can no longer be trusted.
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
	err := fmt.Errorf(format, args...)
	if fail := enginePanicsTo.Load(); fail != nil && storePackages[l.pkg] {
		text, _, _ := strings.Cut(err.Error(), "\n") // a stack is behind it
		(*fail)(errors.New(text))
	}
	// An error and not a string: the engine's start swallows panics with strings and returns nothing at all.
	panic(err)
}

func (l engineLogger) log(level slog.Level, format string, args []interface{}) {
	to := engineLoggerTo.Load()
	if to == nil || !to.Enabled(context.Background(), level) {
		return
	}
	to.Log(context.Background(), level, "raft engine", "package", l.pkg, "text", fmt.Sprintf(format, args...))
}
