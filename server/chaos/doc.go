// Package chaos has tests that run signalbox and its clients as real processes, kill them, and
// check every promise by what they left in files.
package chaos
