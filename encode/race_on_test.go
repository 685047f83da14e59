//go:build race

package encode

// raceEnabled: the race detector makes sync.Pool lose things at random.
const raceEnabled = true
