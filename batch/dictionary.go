package batch

// A Dictionary maps the numbers in [Meta.Stream] to the streams they denote. The destination that
// assigns the numbers provides it, so that another process can interpret data stored on disk. Its
// methods must be safe for concurrent use.
type Dictionary interface {
	// AppendStream appends the definition of stream id to dst, such as a tag or a label set,
	// and reports whether id was ever assigned.
	AppendStream(dst []byte, id uint32) ([]byte, bool)

	// Stream returns the number that this process uses for the stream defined by def, and
	// assigns one if necessary. def was written by AppendStream, possibly by another process
	// or version; Stream must not retain it. For an invalid definition, Stream returns a
	// number whose records the destination rejects.
	Stream(def []byte) uint32
}
