//go:build !race

package firstcopies

const raceEnabled = false
