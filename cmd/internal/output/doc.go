// Package output runs one output of a pipeline: it puts memory, retries and a spool in front of a
// destination, prints events as messages, and returns the account at the end.
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
