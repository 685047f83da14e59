//go:build race

package loki

// raceEnabled: the race detector makes sync.Pool lose things at random.
const raceEnabled = true
