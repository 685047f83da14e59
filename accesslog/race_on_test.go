//go:build race

package accesslog

// raceEnabled: the race detector makes sync.Pool lose things at random.
const raceEnabled = true
