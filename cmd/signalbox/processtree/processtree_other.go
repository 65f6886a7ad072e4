//go:build !linux

package processtree

// Descendants lists nothing: the tree of processes is not read here.
func Descendants(int) []int { return nil }

// Children lists nothing, too.
func Children(int) []int { return nil }
