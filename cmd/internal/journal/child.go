package journal

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/forebay-log/forebay/cmd/internal/lines"
	"github.com/forebay-log/forebay/internal/backoff"
)

// Arguments with which journalctl is started.
const (
	// Without --all, journalctl writes null instead of a message of 4096 bytes or more.
	argsAlways = "--follow --no-pager --no-tail --all --output=json"

	// argFields lists the fields that the parser uses. journalctl always adds the cursor and the
	// times.
	argFields = "--output-fields=MESSAGE,PRIORITY,SYSLOG_IDENTIFIER,SYSLOG_PID,_COMM,_PID,_HOSTNAME,_SYSTEMD_UNIT,_SYSTEMD_USER_UNIT,UNIT"
)

// args returns the arguments of journalctl to continue reading at p.
//
// With --cursor, journalctl first writes the entry of the cursor itself, and the method read skips
// this entry. With --after-cursor, journalctl would begin with the next entry. However, systemd
// before version 253 skips another entry if the entry of the cursor is missing.
func (j *Journal) args(p position) []string {
	args := append(j.o.Command[1:len(j.o.Command):len(j.o.Command)], strings.Fields(argsAlways)...)
	if !j.o.AllFields {
		args = append(args, argFields)
	}
	switch {
	case p.cursor != nil:
		args = append(args, "--cursor="+string(p.cursor))
	case p.since > 0:
		args = append(args, fmt.Sprintf("--since=@%d", p.since/1e6)) // whole seconds; the method read skips earlier entries of this second
	}
	if j.o.ThisBoot {
		args = append(args, "--boot")
	}
	for _, u := range j.o.Units {
		args = append(args, "--unit="+u)
	}
	for _, id := range j.o.Identifiers {
		args = append(args, "--identifier="+id)
	}
	if j.o.Directory != "" {
		args = append(args, "--directory="+j.o.Directory)
	}
	return args
}

// follow runs journalctl until ctx is done or the sink returns an error. If journalctl ends
// earlier, follow restarts it.
func (j *Journal) follow(ctx context.Context) error {
	for failed := 0; ; failed++ {
		start := time.Now()
		ended, err := j.runOnce(ctx)
		switch {
		case err != nil:
			return err
		case ctx.Err() != nil:
			return ErrStopped
		case time.Since(start) > j.maxWait:
			failed = 0
		}
		j.reportEnded(ended)
		wait := backoff.Ceil(j.minWait, j.maxWait, failed)
		timer := time.NewTimer(backoff.Jitter(wait/2, wait))
		select {
		case <-ctx.Done():
			timer.Stop()
			return ErrStopped
		case <-timer.C:
		}
	}
}

// reportEnded reports that journalctl has ended because of reason. The same reason is reported
// again only if entries have arrived in the meantime.
func (j *Journal) reportEnded(reason string) {
	j.reported.Lock()
	same := j.reported.ended == reason
	j.reported.ended = reason
	j.reported.Unlock()
	if !same {
		j.report("journalctl has ended (%s); restarting it", reason)
	}
}

// reportWorks is called when an entry arrives. It reports that journalctl works again, if an end of
// journalctl was reported before.
func (j *Journal) reportWorks() {
	j.reported.Lock()
	was := j.reported.ended != ""
	j.reported.ended = ""
	j.reported.Unlock()
	if was {
		j.report("journalctl works again")
	}
}

// runOnce runs journalctl until it ends. ended is the reason for its end, and err is an error of
// the sink.
func (j *Journal) runOnce(ctx context.Context) (ended string, err error) {
	ctx, kill := context.WithCancel(ctx)
	defer kill()
	r, w, err := os.Pipe()
	if err != nil {
		return err.Error(), nil
	}
	defer r.Close()
	p := j.position()
	cmd := exec.CommandContext(ctx, j.o.Command[0], j.args(p)...)
	stderr := &stderrWriter{report: j.reportStderr}
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = w, stderr, time.Second
	killWithParent(cmd)
	err = cmd.Start()
	w.Close()
	if err != nil {
		return withoutProgram(err).Error(), nil
	}
	stopClosing := context.AfterFunc(ctx, func() { r.Close() }) // ends the method read, even if a child of journalctl keeps the pipe open
	err = j.read(r, p)
	stopClosing()
	r.Close()
	if err != nil {
		kill()
	}
	killTimer := time.AfterFunc(time.Second, kill) // kill journalctl if it does not exit soon after closing its standard output
	defer killTimer.Stop()
	ended = "without an error"
	if werr := cmd.Wait(); werr != nil {
		ended = werr.Error()
	}
	stderr.line()
	return ended, err
}

// read passes the entries after p to the sink until r ends. err is an error of the sink.
func (j *Journal) read(r io.Reader, p position) error {
	first := true
	// A byte of a message may be written as a number, which takes up to 6 bytes in a line. All
	// other fields may take 256 KiB.
	src := lines.New(r, 6*j.o.MaxRecord+256<<10)
	for {
		line, err := src.Next()
		if long := (*lines.TooLongError)(nil); errors.As(err, &long) {
			if err := j.put(Entry{TooLong: long.Bytes}, nil); err != nil {
				return err
			}
			continue
		}
		if err != nil || line[len(line)-1] != '\n' { // incomplete line, because journalctl was killed
			return nil
		}
		if bytes.HasPrefix(line, []byte("-- ")) {
			continue // "-- Journal begins at …"
		}
		e, cursor, ok := j.parser.parse(line)
		if !ok {
			if j.damaged++; j.damaged == 1 {
				j.report("journalctl wrote a line that is not an entry; such lines are skipped")
			}
			continue
		}
		if first {
			first = false
			j.reportWorks()
			if p.cursor != nil && bytes.Equal(cursor, p.cursor) {
				continue
			}
		}
		if p.cursor == nil && p.since > 0 {
			if e.Time.UnixMicro() < p.since {
				continue
			}
			p.since = 0
		}
		if n := len(e.Text) - 1; n > j.o.MaxRecord {
			e = Entry{TooLong: int64(n)}
		}
		if err := j.put(e, cursor); err != nil {
			return err
		}
	}
}

// A stderrWriter splits the standard error of journalctl into lines and reports them.
type stderrWriter struct {
	report func(line string)

	mu   sync.Mutex // guards part; needed because Wait may return during a Write
	part []byte     // incomplete line
}

const (
	maxStderrLines = 20  // maximum number of different lines that are reported
	maxStderrLine  = 300 // maximum length of a reported line in bytes
)

// Write reports each complete line in p.
func (w *stderrWriter) Write(p []byte) (int, error) {
	for _, c := range p {
		if c == '\n' {
			w.line()
			continue
		}
		w.mu.Lock()
		if len(w.part) < maxStderrLine {
			w.part = append(w.part, c)
		}
		w.mu.Unlock()
	}
	return len(p), nil
}

// line reports the line in w.part and clears w.part.
func (w *stderrWriter) line() {
	w.mu.Lock()
	defer w.mu.Unlock()
	text := strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return -1
		}
		return r
	}, strings.ToValidUTF8(strings.TrimSpace(string(w.part)), "\ufffd"))
	if w.part = w.part[:0]; text != "" {
		w.report(text)
	}
}

// reportStderr reports a line from the standard error of journalctl. Equal lines are reported once,
// and at most maxStderrLines in total.
func (j *Journal) reportStderr(line string) {
	j.reported.Lock()
	n := len(j.reported.lines)
	if n > maxStderrLines || j.reported.lines[line] {
		j.reported.Unlock()
		return
	}
	if j.reported.lines == nil {
		j.reported.lines = map[string]bool{}
	}
	j.reported.lines[line] = true
	j.reported.Unlock()
	if n == maxStderrLines {
		line = "further messages are not shown"
	}
	j.report("journalctl: %s", line)
}
