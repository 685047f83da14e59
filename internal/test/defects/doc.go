// Package defects tests that fixed defects stay fixed. Each was found through the public API:
// records were lost, delayed, reordered or miscounted. The package contains only tests, which use
// public packages and testkit.
//
// Each entry of the list names the promise that the defect broke, and a function that reproduces
// the defect.
package defects
