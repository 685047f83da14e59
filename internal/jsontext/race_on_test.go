//go:build race

package jsontext

// raceEnabled: the race detector makes sync.Pool lose things at random.
const raceEnabled = true
