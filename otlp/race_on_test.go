//go:build race

package otlp

// raceEnabled: the race detector makes sync.Pool lose things at random.
const raceEnabled = true
