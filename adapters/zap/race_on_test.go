//go:build race

package forebayzap

// raceEnabled: the race detector makes sync.Pool lose things at random.
const raceEnabled = true
