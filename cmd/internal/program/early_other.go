//go:build !linux

package program

// beginSync does nothing: Sync is all there is.
var beginSync = func(string) {}
