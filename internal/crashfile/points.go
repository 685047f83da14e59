package crashfile

// Steps at which a test of package slablog may kill the process. The comment beside each describes
// the state at that step.
const (
	PointPersist       = "persist"       // records are delivered, but not marked as settled in the file
	PointPersisted     = "persisted"     // these records are marked as settled
	PointUnlink        = "unlink"        // an empty file is about to be removed
	PointUnlinkBetween = "unlinkBetween" // the companion file is removed, the main file is not
	PointUnlinked      = "unlinked"      // the main file is removed

	PointCreate     = "create"        // the file is allocated and has a temporary name
	PointCreated    = "created"       // the file has its final name
	PointAckHalf    = "ackHalfLocked" // one of the two words of an Ack is stored
	PointBigWrite   = "bigWrite"      // an oversize record is about to be written
	PointBigWritten = "bigWritten"    // the oversize record is written
	PointBigCompact = "bigCompact"    // the new companion file is complete, but not renamed yet
)

// Point is called at each of these steps. With the build tag forebay_points, package slablog
// replaces it with a function for tests.
var Point = func(name string) {}
