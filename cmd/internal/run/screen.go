package run

import (
	"time"

	"github.com/forebay-log/forebay/cmd/internal/console"
)

// A screen shows the live line of a pipeline.
type screen struct{ p *Pipeline }

// show updates the live line until quit is closed.
func (s screen) show(quit <-chan struct{}) {
	p := s.p
	tick := time.NewTicker(console.LiveEvery)
	defer tick.Stop()
	before, at := s.progress(), time.Now()
	for {
		select {
		case <-quit:
			return
		case now := <-tick.C:
			cur := s.progress()
			p.Console.Show(console.LiveLine(before, cur, now.Sub(at), console.LiveWidth(p.term)))
			before, at = cur, now
		}
	}
}

// progress returns the content of the live line.
func (s screen) progress() console.Progress {
	p := s.p
	read := p.Read()
	now := console.Progress{Records: read.Records, Bytes: read.Bytes, Dropped: read.Oversize}
	for _, out := range p.Outputs() {
		st := out.Delivery.Stats()
		s := &st.Slab
		now.Dropped += s.Dropped.Total()
		now.Waiting = now.Waiting || s.Waiting > 0
		if s.SlabsInUse >= now.InUse {
			now.InUse, now.Slabs = s.SlabsInUse, s.SlabCount
		}
		if st.Deliver.LastError != "" {
			now.Failing = out.To
		}
	}
	return now
}
