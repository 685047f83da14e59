package crashfile

// The steps at which a test of package slab may end the process.
const (
	PointPersist       = "persist"       // records are delivered, that is not noted
	PointPersisted     = "persisted"     // it is noted
	PointUnlink        = "unlink"        // before a file with nothing left is removed
	PointUnlinkBetween = "unlinkBetween" // oversize records are gone, the file is not
	PointUnlinked      = "unlinked"      // it is
)

// Point is called at each step. Package slab sets it when it is built with the tag
// forebay_points: the points of the two packages are one list to a test.
var Point = func(name string) {}
