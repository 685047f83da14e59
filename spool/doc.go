// Package spool keeps batches on disk, in order, until they are acknowledged.
//
// A [Spool] is a queue of batches in a directory of segment files. [Spool.Append]
// adds one at the end, [Spool.Next] hands out the oldest not yet handed out,
// [Spool.Ack] settles everything up to one of them, [Spool.Rewind] begins again
// after the last Ack. Segments whose batches are all acknowledged are deleted.
// What is there when a process ends, however it ends, is there when the next one
// calls [Open]: at least once, in order, with nothing torn and nothing made up.
//
// It reads and writes one batch at a time and keeps a few hundred bytes per
// segment in memory, however much lies on disk. Open reads the header of every
// segment and the frames of the last one only.
//
// # Files
//
//	LOCK                        held by the process that has the spool open
//	cursor                      how far batches are acknowledged
//	00000007.seg                segment: header, frame, frame, …
//	00000006.seg.….parked       a segment in a form that Options.Accepts refused
//	00000005.seg.corrupt        a damaged segment, set aside
//
//	segment   | magic · crc · version · content type · schema · uuid · id · first batch, record · time |
//	frame     | crc · body crc · lengths · batch · record · time | streams | index | payload |
//
// docs/format/spool.md has every byte. Both checksums are CRC32C seeded with the
// segment's uuid, so a frame counts only in the segment it was written for.
//
// # Failure
//
// A process killed inside Append leaves a torn frame at the end of the last
// segment. That is normal and is cut off by the next Open. Anything else that
// does not read back as it was written is damage: the batches before it are
// used, the rest of that segment is counted, reported as a [CorruptError] and,
// once the batches before it are acknowledged, set aside as *.corrupt. Reading
// goes on with the next segment.
//
// # Goroutines and locks
//
// With Options.Sync "interval" one goroutine, started by Open and ended by Close, calls
// Sync. Events run on one that lives only while there are any. Locks are taken
// in the order writeMu, readMu, syncMu, mu; who holds readMu takes writeMu only
// with TryLock. mu is a leaf, held for no I/O.
package spool
