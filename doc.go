// Package forebay is the front door of a logging pipeline: a few lines give a program a
// logger whose calls do not wait for files, terminals or log servers.
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
// When memory is full because a destination stalls, a call waits at most 250 ms, and then
// its record is dropped and counted. [WhenFull] "block" waits as long as it takes, and so
// does [BusyTimeout] with [Forever] for a direct output (docs/adr/0039).
//
// [New] returns a [Logger], for programs that want the shortest and fastest way, and
// [Logger.Slog] the *slog.Logger beside it. Behind both is a [Router], a [slog.Handler].
//
// # Outputs
//
// [Console], [File], [Writer] and [To] are outputs here; loki.To, fluent.To and netsink.To
// are those of the packages named. Each has memory of its own. A call encodes the record,
// copies it there and returns; a goroutine delivers it, with retries. The options
// [Level], [Name], [Encoder], [Spool], [CrashSafe], [WhenFull], [Buffer] and [Delivery]
// mean the same for all of them.
//
// [Output] and [OutputCloser] are for any io.Writer. A writer with a method WriteRecord,
// such as a deliver.Output, is buffered, as the outputs above are. All others are direct:
// the record is written in the caller, one Write per record, and is with the operating
// system when Handle returns. That starts no goroutine and allocates nothing.
//
// If an output fails or panics, that is counted and reported, and the others go on.
// Buffered outputs are served before direct ones, so a direct one that hangs keeps no
// record from them. While a write to a direct output does not end, other callers wait for
// it, at most BusyTimeout. After that they skip the output at once until the write ends,
// and each such record is counted as dropped{busy}. Buffered outputs isolate callers from
// hangs, with one exception: if the policy is to wait without end (WhenFull "block"), a
// destination that hangs holds the caller, who then logs to no other output either.
//
// Outputs with the same encoder share its result: a record is encoded once for all of
// them. A [Route] says which outputs these are; outputs that stand alone share the default
// encoder, or one that was given to them as the same value. The methods that give a value
// its text (LogValue, String, those of an error) are called once per encoder, too.
//
// A program that writes to a broken pipe as its file descriptor 1 or 2 is ended
// by the Go runtime (SIGPIPE), which no library can prevent; on other
// descriptors EPIPE fails that output only.
//
// [slog.SetDefault] redirects the standard log, too: a line that any library prints with
// package log becomes a record of level INFO. Package log holds a lock of its own during
// the call. So a direct output must not print with it: it would wait for itself.
//
// # Where things are
//
// [Logger.Named] and [Router.SetLevel] have levels by name, [Sample] thins out storms,
// [Context] adds attributes of a context such as trace ids, [SyncLevel], [Exit] and
// [Logger.Recover] save the last lines of a program. The place of the call in the source
// is an option of the encoder:
//
//	forebay.File("app.log", forebay.Encoder(encode.JSON(&encode.Options{AddSource: true})))
//
// Package httpops serves metrics, health and levels over HTTP, accesslog logs the requests
// of a server, forebaytest captures records in tests, slab sizes memory (Plan), deliver
// has the seam for destinations of your own. Modules for zap, zerolog and gRPC are in
// adapters.
//
// # Redaction
//
// [RedactKeys], [RedactPaths], [RedactPattern] and [ReplaceAttr] keep secrets out of all
// outputs: they are applied once per record, before it is encoded. Methods of values are
// called once more for it. What is looked at, and what is not: docs/REDACTION.md.
//
// # Account
//
// Each output keeps an account ([Router.Stats]): every accepted record is delivered,
// handled, dropped for a reason, or pending. An output accepts a record if its level
// admits it.
package forebay
