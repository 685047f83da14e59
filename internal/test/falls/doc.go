// Package falls tests defects that were found through the public API: records that were lost,
// delayed or miscounted. It contains tests only, which use public packages and testkit.
//
// Each defect has a state and a script that reproduces it reliably. The test of a fixed defect is
// an ordinary test. The script of a known defect must still reproduce it; otherwise its test fails,
// so that the list stays correct. To record a fix, change the state in list_test.go.
package falls
