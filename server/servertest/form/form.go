// Package form says how large a run of the tests is: by SIGNALBOX_TEST, which the targets of the
// Makefile set. Tests of any package use it; no program does.
//
// A person waits for the ordinary form, so that it looks at each promise once and ends within
// minutes. What it leaves to a longer form says so with SkipUntil, and names why the shorter one
// does without.
package form

import (
	"fmt"
	"os"
	"slices"
	"sync"
	"testing"
)

// A Form is one of four: each does what the one before it does, and more.
type Form int

const (
	// Test is the form for a person: `go test` and `make test`.
	Test Form = iota
	// Full is for CI, before a merge: within 40 minutes for everything.
	Full
	// Long is for the night: long forms, and random tests that go on for a minute each.
	Long
	// Soak is for a day before a release: sizes and durations of production, and figures in the
	// tests' log.
	Soak
)

var names = []string{"", "full", "long", "soak"}

// String is the form's value in SIGNALBOX_TEST, empty for Test.
func (f Form) String() string { return names[f] }

// chosen reads the variable while tests run, and not before: then `go test` knows that the result
// depends on it, and takes none of another form from its cache.
var chosen = sync.OnceValue(func() Form {
	text := os.Getenv("SIGNALBOX_TEST")
	i := slices.Index(names, text)
	if i < 0 {
		panic(fmt.Sprintf("SIGNALBOX_TEST is %q; give full, long or soak, or leave it out", text))
	}
	return Form(i)
})

// Is reports whether this run is of form f or a longer one.
func Is(f Form) bool { return chosen() >= f }

// Of returns the size of a test: short in the ordinary form and in `full`, long in the longer ones.
func Of[T any](short, long T) T {
	if Is(Long) {
		return long
	}
	return short
}

// Size returns the size of a test that a person does not wait for in full.
func Size[T any](test, full, long T) T {
	if !Is(Full) {
		return test
	}
	return Of(full, long)
}

// SkipUntil skips a test that runs in form f and longer ones only. The reason says what it takes.
func SkipUntil(t testing.TB, f Form, reason string) {
	t.Helper()
	if !Is(f) {
		t.Skipf("%s: SIGNALBOX_TEST=%s runs it", reason, f)
	}
}
