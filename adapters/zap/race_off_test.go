//go:build !race

package forebayzap

const raceEnabled = false
