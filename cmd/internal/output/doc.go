// Package output runs one output of a pipeline. It adds memory, retries and a spool to a
// destination, prints events as messages, and counts the records by their outcome.
//
//	intake ─▶ Output.Delivery (slabs, retries, spool) ─▶ Target
//	              │ events
//	              ▼
//	           Env.Console
//
// An [Env] contains the data that the outputs and inputs of one pipeline share.
//
//	out := &output.Output{Env: env, Spec: spec, Target: target}
//	err := out.Connect()
package output
