package batch

// A Dictionary maps the number in [Meta.Stream] to the definition of the stream, such as a tag or a
// label set. The destination that assigns the numbers provides the Dictionary. Definitions are
// stored on disk with the records, so that another process can read them. The methods must be safe
// for concurrent use.
type Dictionary interface {
	// AppendStream appends the definition of stream id to dst. It returns false if id was never
	// assigned.
	AppendStream(dst []byte, id uint32) ([]byte, bool)

	// Stream returns the number of the stream with the definition def, and assigns one if
	// necessary. def was written by AppendStream, possibly by another process or version. Stream
	// must not retain def. For an invalid definition, Stream returns a number whose records the
	// destination rejects.
	Stream(def []byte) uint32
}
