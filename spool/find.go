package spool

import (
	"cmp"
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/forebay-log/forebay/internal/vfs"
)

// foundSegment is a segment file that was found in a directory.
type foundSegment struct {
	*segment
	bad error // why its header cannot be used, a cause of [CorruptError]
}

// findSegments returns the segments in dir and the files set aside, in order. Files may vanish
// while it runs.
func findSegments(fsys vfs.FS, dir string) (segs []foundSegment, set []aside, err error) {
	names, err := fsys.ReadDir(dir)
	if err != nil {
		return nil, nil, err
	}
	for _, name := range names {
		if g, ok := segmentFile(name); ok {
			err := g.load(fsys, dir)
			switch {
			case isNotExist(err):
				continue
			case err != nil && !damaged(err) && !errors.Is(err, errUnreadable):
				return nil, nil, fmt.Errorf("cannot read %s: %w", name, err)
			}
			segs = append(segs, foundSegment{segment: &g, bad: err})
		} else if id, ok := corruptID(name); ok {
			size, err := fsys.Size(filepath.Join(dir, name))
			switch {
			case isNotExist(err):
				continue
			case err != nil:
				return nil, nil, err
			}
			set = append(set, aside{name: name, id: id, disk: size})
		}
	}
	slices.SortFunc(set, func(a, b aside) int { return cmp.Compare(a.id, b.id) })
	slices.SortFunc(segs, func(a, b foundSegment) int { return byPlace(a.segment, b.segment) }) // longer numbers sort wrongly as names
	var prev *segment
	for i := range segs {
		if g := &segs[i]; g.bad == nil && g.lane == inLine {
			if g.bad = outOfOrder(prev, g.segment); g.bad == nil {
				prev = g.segment
			}
		}
	}
	return segs, set, nil
}

// outOfOrder returns errOrder if g cannot follow prev, which may be nil.
func outOfOrder(prev, g *segment) error {
	if prev != nil && (g.firstSeq < prev.firstSeq || g.firstRec < prev.firstRec) {
		return errOrder
	}
	return nil
}

// load reads the header of the segment, whose name, number and lane are set. On error it
// sets at most the size on disk.
func (g *segment) load(fsys vfs.FS, dir string) error {
	f, err := openIn(fsys, dir, g.name)
	if errors.Is(err, vfs.ErrNotRegular) {
		return errNotPlain
	}
	if err != nil {
		return err
	}
	defer f.Close()
	if g.disk, err = f.Size(); err != nil {
		return err
	}
	h, err := readSegmentHeader(f, g.disk)
	if err != nil && !damaged(err) {
		err = fmt.Errorf("%w: %w", errUnreadable, err)
	}
	if err != nil {
		return err
	}
	if h.id != g.id || g.lane != inLine && (g.from.seq < h.firstSeq || g.from.rec < h.firstRec) {
		return errMisnamed
	}
	g.segmentHeader, g.size = h, min(g.disk, maxSegmentFile)
	return nil
}
