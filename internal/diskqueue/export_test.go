package diskqueue

// These names are for tests in package spool_test, which use packages that import this package.
var (
	OpenOn    = open
	Each      = each
	MustClose = mustClose

	ErrInjected = errInjected
)

// TestDir is the spool directory of most tests.
const TestDir = testDir
