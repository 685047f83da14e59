//go:build !linux

package dest

// BeginSync does nothing: this system only has Sync.
var BeginSync = func(string) {}
