// Package forebay provides a logger whose calls do not wait for files, terminals or log
// servers.
//
//	log, err := forebay.New(
//		forebay.Console(os.Stderr),
//		forebay.File("app.log", forebay.Rotate(100<<20, 7)),
//		loki.To("http://localhost:3100", loki.Label("app", "shop")))
//	if err != nil {
//		…
//	}
//	defer log.Close()
//	slog.SetDefault(log.Slog())
//
// A call encodes the record once per encoder and copies it into the memory of each output.
// One goroutine per output delivers it:
//
//	Logger, slog.Handler ─▶ redact ─▶ encode ─▶ memory ─▶ goroutine ─▶ destination
//	                                                          └─▶ spool, while it is down
//
// If memory is full because a destination stalls, a call waits at most 250 ms. The record is
// then dropped and counted. With [WhenFull] "block" a call waits until there is room; for
// direct outputs, [BusyTimeout] with [Forever] has the same effect (docs/adr/0039).
//
// [New] returns a [Logger], the fastest API. [Logger.Slog] returns a *slog.Logger with the
// same outputs. Both log through a [Router], which implements [slog.Handler].
//
// # Outputs
//
// This package has the outputs [Console], [File], [Writer] and [To]; other packages add
// loki.To, fluent.To, netsink.To and more. Each of these outputs has separate memory and a
// goroutine that delivers records and retries. The options [Level], [Name], [Encoder],
// [Spool], [CrashSafe], [WhenFull], [Buffer] and [Delivery] have the same meaning for all of
// them.
//
// [Writer] with the option [Direct] is a direct output: the calling goroutine writes each record
// with one Write, and the record is in the operating system when the call returns. A direct
// output starts no goroutine and allocates nothing.
//
// If an output fails or panics, the failure is counted and reported, and the other outputs
// are unaffected. Buffered outputs are served before direct ones, so a hanging direct output
// delays no buffered one. While a write to a direct output hangs, other callers wait for it,
// at most BusyTimeout. After that they skip the output until the write returns, and each
// skipped record is counted as dropped{busy}. Buffered outputs isolate callers from hangs,
// with one exception: with WhenFull "block", a hanging destination blocks the caller, which
// then logs to no other output either.
//
// Outputs with the same encoder share its result: the record is encoded once for all of them. A
// [Route] groups such outputs explicitly. Outputs without a Route share the default encoder.
// Outputs that are given the same Encoder value share its result, too. The methods that convert a
// value to text (LogValue, String, Error) are called once per encoder.
//
// If a program writes to a broken pipe on file descriptor 1 or 2, the Go runtime terminates it
// with SIGPIPE; no library can prevent that. On other descriptors EPIPE fails only that
// output.
//
// [slog.SetDefault] also redirects the standard log package: a line that a library prints with
// package log becomes a record of level INFO. Package log holds a lock during the call, so the
// writer of a direct output must not print with package log. It would deadlock.
//
// # Other features
//
// [Logger.Named] and [Router.SetLevel] provide levels by logger name. [Sample] limits bursts.
// [Context] adds attributes of a context, such as trace ids. [SyncLevel], [Exit] and
// [Logger.Recover] save the last records of a program. The source position is an option of the
// encoder:
//
//	forebay.File("app.log", forebay.Encoder(encode.JSON(&encode.Options{AddSource: true})))
//
// Package httpops serves metrics, health and levels over HTTP. Package accesslog logs the
// requests of a server. Package forebaytest captures records in tests. Package slab computes
// buffer sizes (Plan). Package deliver defines the interface for custom destinations. Modules
// for zap, zerolog and gRPC are in adapters.
//
// # Redaction
//
// [RedactKeys], [RedactPaths], [RedactPattern] and [ReplaceAttr] remove secrets from all outputs.
// They are applied once per record, before it is encoded. Methods of values, such as String, are
// therefore called one additional time. See docs/REDACTION.md for the parts of a record that are
// searched.
//
// # Account
//
// Each output keeps an account ([Router.Stats]): every accepted record is delivered, handled,
// dropped for a reason, or pending. An output accepts a record if the level of the output admits
// the record.
package forebay
