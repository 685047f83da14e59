package top

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/forebay-log/forebay/cmd/internal/control"
)

// A Screen is the terminal on which Live draws.
type Screen struct {
	W       io.Writer
	Size    func() (width, height int)
	Keys    <-chan []byte    // receives keys that the user types; nil if they cannot be read
	Resized <-chan os.Signal // receives a value when the size of the terminal changes
	Style   Style            // Live sets the field Width
}

// Escape sequences for the terminal: enter switches to the alternate screen and hides the cursor,
// leave has the opposite effect, and home moves the cursor to the first line.
const (
	enter = "\x1b[?1049h\x1b[?25l"
	leave = "\x1b[?25h\x1b[?1049l"
	home  = "\x1b[H"
)

// A mode determines whether the display is updated.
type mode uint8

const (
	following mode = iota
	paused         // the display does not change
)

// Live displays the state of a running program until the user quits, ctx is done or the program
// ends. If the program has ended, ended is true.
//
// Live calls the function look at regular intervals and draws the states that look returns. If look
// fails because the program does not answer, Live displays the error and continues. h contains the
// earlier states.
func Live(ctx context.Context, scr Screen, h *History, every time.Duration, look func(context.Context) (*control.State, error)) (ended bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	type result struct {
		s   *control.State
		err error
	}
	results := make(chan result)
	finished := make(chan struct{})
	go func() {
		defer close(finished)
		tick := time.NewTicker(every)
		defer tick.Stop()
		for {
			s, err := look(ctx)
			select {
			case results <- result{s, err}:
			case <-ctx.Done():
				return
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
		}
	}()
	defer func() { cancel(); <-finished }()

	if _, err := io.WriteString(scr.W, enter); err != nil {
		return false, err
	}
	defer func() {
		if _, werr := io.WriteString(scr.W, leave); err == nil {
			err = werr
		}
	}()
	v := view{h: h}
	for {
		if err := v.draw(scr); err != nil {
			return false, err
		}
		select {
		case got := <-results:
			switch {
			case control.Ended(got.err):
				return true, nil
			case got.err != nil:
				v.lookError = got.err.Error()
			default:
				if v.lookError = ""; v.mode == following {
					h.Add(got.s)
				}
			}
		case typed, ok := <-scr.Keys:
			if !ok {
				scr.Keys = nil
			} else if v.handleKeys(typed) {
				return false, nil
			}
		case <-scr.Resized:
		case <-ctx.Done():
			return false, nil
		}
	}
}

// A view is the state of the display.
type view struct {
	h         *History
	mode      mode
	skip      int    // number of outputs that are scrolled out at the top
	lookError string // error of the last call of look, or ""
}

// handleKeys handles keys. It returns true if the user wants to quit.
func (v *view) handleKeys(keys []byte) (enough bool) {
	for text := string(keys); text != ""; {
		var key string
		for _, key = range []string{"\x1b[A", "\x1b[B", "\x1bOA", "\x1bOB", text[:1]} {
			if strings.HasPrefix(text, key) {
				break
			}
		}
		text = text[len(key):]
		switch key {
		case "q", "Q", "\x03", "\x04":
			return true
		case "p", "P", " ":
			v.mode ^= paused
		case "k", "\x1b[A", "\x1bOA":
			v.skip = max(0, v.skip-1)
		case "j", "\x1b[B", "\x1bOB":
			v.skip++
		}
	}
	return false
}

// draw draws the display on the terminal.
func (v *view) draw(scr Screen) error {
	width, height := scr.Size()
	s := scr.Style
	s.Width = max(10, width)
	lines := v.lines(s, max(2, height))
	var sb strings.Builder
	sb.WriteString(home)
	for i, l := range lines {
		if i > 0 {
			sb.WriteString("\r\n")
		}
		sb.WriteString(l.render(s.Color) + "\x1b[K")
	}
	sb.WriteString("\x1b[J")
	_, err := io.WriteString(scr.W, sb.String())
	return err
}

// lines returns exactly height lines. The last line explains the keys.
func (v *view) lines(s Style, height int) (lines []line) {
	room := height - 1
	shown, all := 0, 0
	if v.h.now == nil {
		lines = []line{{{text: "looking"}}}
	} else {
		parts := v.h.parts(s)
		lines = append(lines, parts[0]...)
		outs := parts[1:]
		all = len(outs)
		v.skip = max(0, min(v.skip, all-1))
		for _, part := range outs[v.skip:] {
			if shown > 0 && len(lines)+1+len(part) > room {
				break
			}
			if shown > 0 {
				lines = append(lines, nil)
			}
			lines = append(lines, part...)
			shown++
		}
	}
	lines = lines[:min(len(lines), room)]
	for len(lines) < room {
		lines = append(lines, nil)
	}
	foot := []word{{text: "q quit"}, {text: "p pause"}}
	if v.mode == paused {
		foot[1] = word{"paused, p resumes", yellow}
	}
	if shown < all {
		foot = append(foot, word{text: fmt.Sprintf("j k %d-%d of %d", v.skip+1, v.skip+shown, all)})
	}
	if v.lookError != "" {
		foot = append([]word{{v.lookError, red}}, foot...)
	}
	return append(lines, flow(s.Width, 0, foot...)[0])
}
