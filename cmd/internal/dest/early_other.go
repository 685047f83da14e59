//go:build !linux

package dest

// BeginSync does nothing: Sync is all there is.
var BeginSync = func(string) {}
