//go:build race

package values

const raceEnabled = true
