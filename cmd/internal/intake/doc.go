// Package intake puts the lines of an input into the outputs that receive them: it parses, transforms,
// filters and encodes each line once per form.
//
//	source ─▶ Inlet ─┬─ Intake (one goroutine) ─┬─▶ output
//	                 └─ Intake (one goroutine) ─┴─▶ output
//
// A pipeline changes outputs and transforms while all intakes are held.
//
//	take := inlet.NewIntake()
//	open := take.Put(line, 0, intake.Known{Noted: t})
package intake
