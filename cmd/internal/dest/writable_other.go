//go:build !unix

package dest

// CanWrite returns nil, because permissions are not checked on this system.
func CanWrite(string, bool) error { return nil }
