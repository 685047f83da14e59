// Package defects tests defects that were found through the public API: records that were lost,
// delayed, reordered or miscounted. It contains only tests, which use public packages and testkit.
//
// Each defect of the list has a promise that it broke and a script that reproduced it.
package defects
