// Package forebay is the front door of a logging pipeline: a [slog.Handler] that
// encodes each record once per route and hands it to any number of outputs, and
// a [Logger] for programs that want the shortest way.
//
//	r, err := forebay.NewRouter(
//		forebay.Route(encode.JSON(nil),
//			forebay.OutputCloser(slog.LevelInfo, buffered), // a slab.Writer in front of a file
//			forebay.Output(slog.LevelError, os.Stderr)))
//	…
//	defer r.Close(ctx)
//	slog.SetDefault(slog.New(r))
//
// # Outputs
//
// An output is any io.Writer. One with a method WriteRecord, such as a
// slab.Writer, is buffered: it takes the record and returns, and what its
// destination does is its own affair. All others are direct: the record is
// written in the caller, one Write per record, and is with the operating system
// when Handle returns. No goroutine is started for that and nothing is allocated.
//
// An output that fails or panics is counted and reported and does not concern
// the others. Buffered outputs are served before direct ones, so a direct one
// that hangs cannot keep a record from them. While a write to a direct output
// does not end, others wait for it, at most BusyTimeout; then they skip it, at
// once, until it does end, and each such record is counted as dropped{busy}.
// Isolation from hangs is the promise of buffered outputs; one whose policy is to
// wait without end (slab.Block) holds its caller while its destination hangs, and
// so what that caller would log anywhere else.
//
// A record is encoded once per route, however many outputs the route has. The
// methods that give a value its text (LogValue, String, those of an error) are
// called once per route, too.
//
// A program that writes to a broken pipe as its file descriptor 1 or 2 is ended
// by the Go runtime (SIGPIPE), which no library can prevent; on other
// descriptors EPIPE fails that output only.
//
// [slog.SetDefault] redirects the standard log, too: what any library prints with
// package log becomes a record of level INFO. Package log holds a lock of its own
// meanwhile, so that a direct output must not print with it: it would wait for itself.
//
// # Account
//
// Each output keeps an account ([Router.Stats]): what was accepted is delivered,
// handled, dropped for a reason, or pending. A record is accepted by an output
// when its level admits it.
package forebay
