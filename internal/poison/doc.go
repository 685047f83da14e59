// Package poison finds records that a destination cannot accept, if the destination does not report
// which record is at fault: it ends the session or never answers. No good record may be condemned
// (found to be at fault) because the destination, or one of its streams, is failing.
//
// A [Detector] makes the decisions for one destination. It has no goroutine, no I/O and no clock. Its
// caller makes the sends that [Detector.Next] returns and reports each result.
//
//	three sessions ended or three server errors at the same batch, one long silence, or an answer in doubt
//	     │
//	     ▼
//	bisect: the oldest records go in pieces, half as large after each failure
//	     │ a single record fails: the suspect
//	     ▼
//	probe:  a record of another stream that was accepted before, then one to three copies of an
//	        accepted record of the suspect's stream (the references), then the suspect
//	     ├─ the suspect is accepted        ─▶ it was innocent
//	     ├─ the first reference fails      ─▶ the server is failing, the count restarts
//	     ├─ a reference of its stream does ─▶ the stream is failing: it is held, the count restarts
//	     └─ only the suspect fails, 8 times in a row ─▶ it is parked and probed from time to time,
//	        and condemned once these probes span 30 s
//
// Random resets condemn a good record with a probability below 10⁻⁶ at any rate (ADR 47). Eight
// answers in doubt (batch.Doubt) condemn without the 30 s. Server errors (batch.ServerError) condemn
// only after an hour. So does a suspect whose stream has no reference, if no other record of the
// stream is suspected. While no reference of any stream is known, no record is condemned.
package poison
