// Package defects tests that fixed defects stay fixed. Each was found through the public API:
// records were lost, delayed, reordered or miscounted. The package contains only tests, which use
// public packages and testkit.
//
// Each entry of the variable defects names a broken promise, and a function that reproduces the
// defect.
package defects
