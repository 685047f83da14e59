package experiments

import "io"

// A buffer is a slab without slots.
type buffer struct {
	p   []byte
	n   int
	own bool // one record has it for itself: it is not used again
}

// A pipe passes full buffers to a goroutine that writes them, and gives them back.
type pipe struct {
	free, full chan *buffer
	done       chan error
}

func newPipe(dst io.Writer, size, count int) *pipe {
	p := &pipe{free: make(chan *buffer, count), full: make(chan *buffer, count), done: make(chan error, 1)}
	for range count {
		p.free <- &buffer{p: make([]byte, size)}
	}
	go func() {
		var first error
		for b := range p.full {
			if b.n > 0 {
				if _, err := dst.Write(b.p[:b.n]); err != nil && first == nil {
					first = err
				}
			}
			if b.own {
				continue
			}
			b.n = 0
			p.free <- b
		}
		p.done <- first
	}()
	return p
}

// end passes the last buffers on and waits until everything is written.
func (p *pipe) end(last ...*buffer) error {
	for _, b := range last {
		p.full <- b
	}
	close(p.full)
	return <-p.done
}
