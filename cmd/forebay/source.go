package main

import (
	"os"

	"github.com/forebay-log/forebay/batch"
)

// A source is where the lines of a pipeline come from.
type source interface {
	// read takes lines until the source ends, or stop is called. The reader calls it,
	// once.
	read() error
	// stop makes read return soon. It may be called at any time, from any goroutine.
	stop()
	// finish is called after read, when the outputs are closed. delivered says that
	// they have delivered, dropped for a reason, or kept everything that was read.
	finish(delivered bool) error
	// close releases what the source holds.
	close()
	// readsAgain names where it is noted what the next run reads again if it was not
	// delivered; "": nowhere.
	readsAgain() string
}

// A stdinSource is standard input.
type stdinSource struct {
	*input
	p *pipeline
}

func (s stdinSource) read() error      { return s.p.read() }
func (stdinSource) finish(bool) error  { return nil }
func (stdinSource) readsAgain() string { return "" }

// openSource opens what the lines come from. The outputs are open.
func (p *pipeline) openSource(stdin *os.File) error {
	if p.c.tail != nil {
		s, err := p.openTail()
		if err != nil {
			return configError(err)
		}
		p.src = s
		return nil
	}
	in, err := newInput(stdin)
	if err != nil {
		return runtimeError(err)
	}
	p.in, p.src = in, stdinSource{in, p}
	if err := p.openAhead(stdin); err != nil {
		in.close()
		return configError(err)
	}
	return nil
}

// finishSource tells the source what became of what it read.
func (p *pipeline) finishSource() {
	delivered := true
	for _, out := range p.outs {
		delivered = delivered && out.report.Dropped[batch.Shutdown] == 0
	}
	if err := p.src.finish(delivered); err != nil {
		p.lastly = append(p.lastly, err.Error())
	}
}

// destinationNames returns what --to and --fallback name, without options.
func (p *pipeline) destinationNames() (names []string) {
	for _, c := range p.c.outs {
		names = append(names, c.name)
	}
	for _, c := range p.c.fallbacks {
		names = append(names, c.name)
	}
	return names
}
