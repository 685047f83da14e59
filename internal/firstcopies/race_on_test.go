//go:build race

package firstcopies

// raceEnabled says that the peers are slow.
const raceEnabled = true
