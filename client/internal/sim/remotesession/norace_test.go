//go:build !race

package remotesession

const raceDetector = false
