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
// slab.Writer, is buffered: it takes the record and returns, and deals with its
// destination by itself. All others are direct: the record is written in the caller, one
// Write per record, and is with the operating system when Handle returns. That starts no
// goroutine and allocates nothing.
//
// If an output fails or panics, that is counted and reported, and the others go on.
// Buffered outputs are served before direct ones, so a direct one that hangs keeps no
// record from them. While a write to a direct output does not end, other callers wait for
// it, at most BusyTimeout. After that they skip the output at once until the write ends,
// and each such record is counted as dropped{busy}. Buffered outputs isolate callers from
// hangs, with one exception: if the policy is to wait without end (slab.Block), a
// destination that hangs holds the caller, who then logs to no other output either.
//
// A record is encoded once per route, however many outputs the route has. The
// methods that give a value its text (LogValue, String, those of an error) are
// called once per route, too.
//
// A program that writes to a broken pipe as its file descriptor 1 or 2 is ended
// by the Go runtime (SIGPIPE), which no library can prevent; on other
// descriptors EPIPE fails that output only.
//
// [slog.SetDefault] redirects the standard log, too: a line that any library prints with
// package log becomes a record of level INFO. Package log holds a lock of its own during
// the call. So a direct output must not print with it: it would wait for itself.
//
// # Account
//
// Each output keeps an account ([Router.Stats]): every accepted record is delivered,
// handled, dropped for a reason, or pending. An output accepts a record if its level
// admits it.
package forebay
