//go:build race

package transform

// raceEnabled: the race detector makes sync.Pool lose things at random.
const raceEnabled = true
