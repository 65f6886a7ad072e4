//go:build !race

package form

// Race reports whether the race detector runs. It empties pools and allocates by itself, so
// allocations are not counted beside it.
const Race = false
