package join

import (
	"bytes"
	"encoding/json"
	"time"
)

// A containerLine is a line in a log file of a container runtime. It contains a line of the
// program, or a part of one, with the stream and the time.
type containerLine struct {
	text    []byte // ends in a newline, unless the line is partial
	stream  string // stdout or stderr
	time    time.Time
	partial bool // the next line of the same stream continues the text
}

// parseCRI parses a line in the format of the Container Runtime Interface (CRI):
//
//	2026-11-23T10:00:00.123456789Z stdout F text
//
// The tag P means that the text is a part of a line, and F that it is the last part. More tags may
// follow after colons. The field text of w shares the memory of line.
func parseCRI(line []byte) (w containerLine, ok bool) {
	if len(line) < len("2006-01-02T15:04:05Z stdout F") || line[10] != 'T' || line[4] != '-' {
		return w, false
	}
	stamp, rest, ok := bytes.Cut(line, space)
	if !ok {
		return w, false
	}
	switch {
	case bytes.HasPrefix(rest, stdout):
		w.stream = "stdout"
	case bytes.HasPrefix(rest, stderr):
		w.stream = "stderr"
	default:
		return w, false
	}
	rest = rest[len(stdout):]
	if len(rest) == 0 || rest[0] != 'P' && rest[0] != 'F' {
		return w, false
	}
	w.partial = rest[0] == 'P'
	switch i := bytes.IndexByte(rest, ' '); {
	case i == 1, i > 1 && rest[1] == ':': // a tag such as F:tag
		w.text = rest[i+1:]
	case len(bytes.TrimRight(rest, "\r\n")) == 1: // an empty text, without the space before it
		w.text = rest[1:]
	default:
		return w, false
	}
	if w.partial {
		w.text = TrimEnd(w.text)
	}
	var err error
	w.time, err = time.Parse(time.RFC3339Nano, string(stamp))
	return w, err == nil
}

var (
	space  = []byte{' '}
	stdout = []byte("stdout ")
	stderr = []byte("stderr ")
)

// TrimEnd returns line without the "\n" or "\r\n" at its end.
func TrimEnd(line []byte) []byte {
	return bytes.TrimSuffix(bytes.TrimSuffix(line, []byte{'\n'}), []byte{'\r'})
}

// parseDocker parses a line of Docker's json-file driver:
//
//	{"log":"text\n","stream":"stdout","time":"2026-11-23T10:00:00.123456789Z"}
//
// If the value of log does not end in a newline, the line is partial.
func parseDocker(line []byte) (w containerLine, ok bool) {
	line = bytes.TrimLeft(line, " \t")
	if len(line) == 0 || line[0] != '{' || !bytes.Contains(line, []byte(`"log"`)) {
		return w, false
	}
	var in struct {
		Log    *string   `json:"log"`
		Stream string    `json:"stream"`
		Time   time.Time `json:"time"`
	}
	if json.Unmarshal(line, &in) != nil || in.Log == nil || in.Stream != "stdout" && in.Stream != "stderr" {
		return w, false
	}
	w.text, w.stream, w.time = []byte(*in.Log), in.Stream, in.Time
	w.partial = !bytes.HasSuffix(w.text, []byte{'\n'})
	return w, true
}
