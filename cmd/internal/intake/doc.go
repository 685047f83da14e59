// Package intake passes the lines of an input to the outputs that receive them. It parses,
// transforms and filters each line once, and encodes it once for each encoding that the outputs
// use.
//
//	source ─▶ Inlet ─┬─ Intake (one goroutine) ─┬─▶ output
//	                 └─ Intake (one goroutine) ─┴─▶ output
//
// While the outputs or transforms of a pipeline change, its intakes are locked; see [Intake.Hold].
//
//	lines := inlet.NewIntake()
//	open := lines.Put(line, 0, &intake.Hints{DefaultTime: t})
package intake
