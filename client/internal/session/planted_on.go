//go:build planted

package session

// Faults to switch on, one at a time.
var (
	plantWholeTimeout bool // R6: a client believes for the whole timeout
)

// Planted are the switches by name. Nothing may run while one is set.
var Planted = map[string]*bool{
	"whole-timeout": &plantWholeTimeout,
}
