//go:build race

package deliver

// raceDetector says that the tests run with the race detector.
const raceDetector = true
