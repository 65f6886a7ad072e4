//go:build race

package remotesession

// raceDetector: the search is one goroutine, in which there is nothing to race with; it is cut
// short.
const raceDetector = true
