// Package spool configures the spool of an output: a queue of batches on disk, for records that the
// destination does not accept for now.
//
//	memory ─▶ destination
//	   │            ▲
//	   └─▶ segment, segment, segment
//
// The option forebay.Spool, or OutputOptions.SpoolDir of package deliver, opens a spool in a
// directory. [Options] sets its quota and when it syncs, and [Stats] contains its counters:
//
//	loki.To("http://loki:3100", forebay.Spool("/var/lib/shop/spool"),
//		forebay.Delivery(func(o *deliver.OutputOptions) { o.Spool.MaxBytes = 4 << 30 }))
//
// Stored records are delivered before newer ones, in their order. They survive any end of the
// process; the next process that opens the directory delivers them. Damage never prevents the
// start: the affected segment is set aside, and a [CorruptError] reports the lost records.
// docs/format/spool.md describes the files. The commands of "forebay spool" list, verify, replay and
// delete them.
package spool
