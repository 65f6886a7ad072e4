// Package chaos holds tests that run signalbox and its clients as real processes, kill them, and check by what they left in files that every promise was kept.
package chaos
