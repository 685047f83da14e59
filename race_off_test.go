//go:build !race

package forebay

const raceEnabled = false
