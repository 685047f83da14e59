package diskqueue

// For the tests in package spool_test: they see packages that import this one.
var (
	OpenOn    = open
	Each      = each
	MustClose = mustClose

	ErrInjected = errInjected
)

// TestDir is the directory of most tests.
const TestDir = testDir
