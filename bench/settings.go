// How large and how long is a run?

package bench

import (
	"io"
	"time"
)

// Settings of a run.
type Settings struct {
	// Systems to compare, this project among them. Those of the subjects that are not here are
	// named as missing.
	Systems []System

	// Rounds, and how long each measurement takes after its warm-up.
	Rounds int
	Length time.Duration
	WarmUp time.Duration

	// Turns is how often in a round the systems of a benchmark that takes turns are measured, one
	// after the other, each time for so small a part of Length. The value of the round is the
	// median.
	Turns int

	// SlowRounds is the number of rounds that include the slow benchmarks: those that take long,
	// and compare with nothing that drifts.
	SlowRounds int

	// Sizes of the loads. Stored reports have those of DefaultSettings.
	Callers, OwnCallers, Readers, Contenders int
	RateCallers                              int
	RateDivisor                              float64 // the rates of measureRates are divided by it
	Watchers, ManyWatchers                   int
	SessionStarts                            int
	IdleOwn, IdleShared                      int

	// IdleDelay is how long idle sessions are left alone before they are looked at; IdleLength how
	// long they are then watched.
	IdleDelay, IdleLength time.Duration

	// Only runs the benchmarks with these names; none is all.
	Only []string

	// Dir holds the data folders, each of which is removed when it was used. It must be on a real
	// disk. Default: the working directory.
	Dir string

	// Log, if not nil, gets a line for each measurement.
	Log io.Writer

	Quick bool
}

// callDeadline is the timeout of each call's context, for each system whose client takes one: as a
// program would set it in order not to hang.
const callDeadline = 10 * time.Second

// rates of measureRates, pairs a second.
var rates = []int{1_000, 4_000, 20_000, 40_000}

// DefaultSettings is the comparison that counts.
func DefaultSettings() Settings {
	return Settings{
		Rounds: 5, Length: 5 * time.Second, WarmUp: 2 * time.Second, Turns: 3, SlowRounds: 3,
		Callers: 1024, OwnCallers: 256, Readers: 256, Contenders: 64,
		RateCallers: 256, RateDivisor: 1,
		Watchers: 5000, ManyWatchers: 20000, SessionStarts: 5000,
		IdleOwn: 5000, IdleShared: 50000,
		IdleDelay: 5 * time.Second, IdleLength: 20 * time.Second,
	}
}

// QuickSettings is the same with fewer and shorter rounds.
func QuickSettings() Settings {
	s := DefaultSettings()
	s.Quick = true
	s.Rounds, s.Length, s.WarmUp, s.Turns, s.SlowRounds = 2, 1500*time.Millisecond, 700*time.Millisecond, 1, 1
	s.IdleDelay, s.IdleLength = 2*time.Second, 6*time.Second
	return s
}

// setLength changes how long each measurement takes, and with it the time that idle servers are
// given, by the shares that they have above.
func (s *Settings) setLength(d time.Duration) {
	s.Length, s.IdleLength = d, 4*d
	s.IdleDelay = min(s.IdleDelay, max(d, 2*time.Second))
}

// TinySettings is for tests: it shows that all works, and its figures mean nothing.
func TinySettings() Settings {
	s := DefaultSettings()
	s.Quick = true
	s.Rounds, s.Length, s.WarmUp, s.Turns, s.SlowRounds = 1, 300*time.Millisecond, 20*time.Millisecond, 1, 1
	s.Callers, s.OwnCallers, s.Readers, s.Contenders = 16, 8, 8, 4
	s.RateCallers, s.RateDivisor = 8, 20
	s.Watchers, s.ManyWatchers, s.SessionStarts = 20, 40, 20
	s.IdleOwn, s.IdleShared = 10, 40
	s.IdleDelay, s.IdleLength = 100*time.Millisecond, 300*time.Millisecond
	return s
}
