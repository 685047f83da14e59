// Package diskqueue implements the spool that package spool configures: it keeps batches on disk, in
// order, until they are acknowledged. Errors begin with "spool: ", since to users they are errors
// of that package.
//
//	s, err := diskqueue.Open("/var/lib/shop/spool", nil)
//	…
//	_, err = s.Append(b)
//	b, seq, err := s.Next() // the oldest batch; io.EOF: there is none
//	…
//	err = s.Ack(seq)
//
//	Append ─▶ segment, segment, segment ─▶ Next ─▶ Ack ─▶ deleted
//	                 ▲                       │
//	                 └──────── Rewind ◀──────┘
//
// A [Spool] is a queue of batches in a directory of segment files. [Spool.Append] adds a batch at
// the end, [Spool.Next] returns the oldest one not returned yet, [Spool.Ack] settles all batches up
// to a number, and [Spool.Rewind] begins again after the last Ack. A segment is deleted once all
// its batches are acknowledged. Batches survive any end of the process: the next process that calls
// [Open] receives each complete batch at least once, in order.
//
// A Spool writes one batch at a time, and reads one, or with [Spool.NextUpTo] as many as fit into a
// given size. It needs a few hundred bytes of memory per segment, whatever the size of the
// segments. Open reads the header of every segment, but only the frames of the last segment, one
// frame in memory at a time.
//
// # Files
//
//	LOCK                        held by the process that has the spool open
//	cursor                      how far batches are acknowledged
//	00000007.seg                segment: header, frame, frame, …
//	00000006.seg.….parked       a segment whose content type or schema Options.Accepts refused
//	00000005.seg.corrupt        a damaged segment, set aside
//
//	segment   | magic · crc · version · content type · schema · uuid · id · first batch, record · time |
//	frame     | crc · body crc · lengths · batch · record · time | streams | index | payload |
//
// docs/format/spool.md describes every byte. Both checksums are CRC32C seeded with the segment's
// uuid, so a frame is valid only in the segment it was written for.
//
// # Durability
//
// When [Spool.Append] has returned, the batch is in the page cache of the system and survives the
// death of the process. Options.Sync determines when it survives a loss of power. When [Spool.Ack]
// has returned, the batches are not handed out again after the death of the process; after a loss of
// power they may be. So each batch is delivered at least once, and twice only after a failure.
//
// Content and name of a file are synced separately: a sync covers the segments, the cursor, the
// directory, and those of its parent directories that Open has created. After a failed sync the
// content of a segment is unknown, because the system may have dropped the pages that it could not
// write. Nothing is appended to such a segment, and Sync fails until its batches are acknowledged.
//
// # Account
//
// [Spool.Account] balances at every moment: accepted + recovered = delivered + dropped + pending.
// Gap markers (records that report dropped records) are stored like others and not counted.
//
//	accepted   stored by Append
//	recovered  found by Open and not acknowledged
//	delivered  acknowledged by Ack
//	dropped    deleted to stay within the quota, or found unreadable after Open
//	pending    the rest, counted by walking the segments
//
// # Failure
//
// A process killed inside Append leaves a torn frame at the end of the last segment. A loss of power
// may also leave there a frame with unwritten pages, which read as zeros. Both are expected: the
// segment ends before the frame, and the next one begins with the same batch number. Any other
// bytes that differ from the bytes written are damage. The batches before the damage are
// used. The rest of that segment is counted and reported as a [spool.CorruptError]. Once the
// batches before it are acknowledged, the file is set aside as *.corrupt. Reading continues with
// the next segment.
//
// If another program deletes, moves or replaces the directory or a segment while the spool is open,
// Append detects this within a second, creates the files again, and counts and reports the lost
// records. If another process has meanwhile stored batches in a directory of that name, Append
// fails, because the cursors of the two processes would contradict each other. Append never deletes
// the files of the other process.
//
// # Concurrency
//
// All methods are safe for concurrent use. They run one after another, because an outlet makes one
// call at a time. Only Sync runs beside the others: a Commit or a timer calls it. Stats and Account
// never wait for I/O.
//
// With Options.Sync "interval" a timer calls Sync after an Append. A goroutine runs OnEvent while
// there are events.
package diskqueue
