package crashfile

// Steps at which a test of package slablog may kill the process.
const (
	PointPersist       = "persist"       // records are delivered, but not yet marked
	PointPersisted     = "persisted"     // they are marked
	PointUnlink        = "unlink"        // before an empty file is removed
	PointUnlinkBetween = "unlinkBetween" // the oversize records are removed, the main file is not
	PointUnlinked      = "unlinked"      // the main file is removed

	PointCreate     = "create"        // allocated and named, but not under its final name
	PointCreated    = "created"       // under its final name
	PointAckHalf    = "ackHalfLocked" // one of the two words of an Ack is written
	PointBigWrite   = "bigWrite"      // before an oversize record is written
	PointBigWritten = "bigWritten"    // after it
	PointBigCompact = "bigCompact"    // the new companion file is complete, but not in place
)

// Point is called at each step. Package slab sets it when built with the tag
// forebay_points. Tests treat the points of both packages as one list.
var Point = func(name string) {}
