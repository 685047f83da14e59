//go:build !race

package fluent

const raceEnabled = false
