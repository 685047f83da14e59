//go:build !linux

package dest

// BeginSync does nothing, because this system can only sync and wait. It is a variable for tests.
var BeginSync = func(string) {}
