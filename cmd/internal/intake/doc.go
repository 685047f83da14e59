// Package intake puts the lines of an input into the outputs that receive them: it parses, transforms,
// filters and encodes each line once per form.
//
//	source ─▶ Inlet ─┬─ Intake (one goroutine) ─┬─▶ output
//	                 └─ Intake (one goroutine) ─┴─▶ output
//
// While the outputs or transforms of a pipeline change, its intakes are locked; see [Intake.Hold].
//
//	take := inlet.NewIntake()
//	open := take.Put(line, 0, intake.Hints{DefaultTime: t})
package intake
