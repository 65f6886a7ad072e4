package delivery

import "flag"

// Properties are checked with the same random numbers each time; -rapid.seed on the command line
// gives others.
func init() { _ = flag.Set("rapid.seed", "20261120") }
