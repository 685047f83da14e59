package batch

// A Dictionary knows what the numbers in [Meta.Stream] stand for. The destination that
// gives the numbers out supplies it, so that what is stored on disk still means
// something to another process. Its methods may be called from several
// goroutines at once.
type Dictionary interface {
	// AppendStream appends to dst the bytes that define stream id, such as a
	// tag or a label set, and reports whether id was ever given out.
	AppendStream(dst []byte, id uint32) ([]byte, bool)

	// Stream returns the number that this process uses for the stream that def
	// defines, and gives one out if there is none. def was written by
	// AppendStream, maybe of another process or version; Stream must not keep
	// it. Stream always answers: for bytes it cannot read it gives out a number
	// whose records the destination then refuses.
	Stream(def []byte) uint32
}

// A Versioned is a [Codec] whose wire form has changed over time. Stored batches
// carry the version; without the method it is 0.
type Versioned interface{ SchemaVersion() uint32 }
