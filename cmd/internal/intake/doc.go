// Package intake puts the lines of an input into the outputs that receive them: it parses, transforms,
// filters and encodes each line once per form.
//
//	source ─▶ Inlet ─┬─ Intake (one goroutine) ─┬─▶ output
//	                 └─ Intake (one goroutine) ─┴─▶ output
//
// The intakes of a pipeline are held while its outputs or transforms change.
//
//	take := inlet.NewIntake()
//	open := take.Put(line, 0, intake.Hints{DefaultTime: t})
package intake
