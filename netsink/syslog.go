package netsink

import (
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/forebay-log/forebay/batch"
)

// facilities are the names of RFC 5424 §6.2.1, in the spelling of syslog.conf(5).
var facilities = []string{
	"kern", "user", "mail", "daemon", "auth", "syslog", "lpr", "news", "uucp", "cron", "authpriv", "ftp",
	"ntp", "security", "console", "solaris-cron", "local0", "local1", "local2", "local3", "local4", "local5", "local6", "local7",
}

// resolveSyslog sets the defaults of the header fields and makes the fields valid. It returns an
// error for an unknown facility.
func (s *Config) resolveSyslog() error {
	if s.Facility == "" {
		s.Facility = "user"
	}
	s.facility = slices.Index(facilities, strings.ToLower(s.Facility))
	if s.facility < 0 {
		// RFC 5424 §6.2.1 numbers the facilities from 0 to 23.
		n, err := strconv.Atoi(s.Facility)
		if err != nil || n < 0 || n >= len(facilities) {
			return fmt.Errorf("netsink: facility %q is not one of %s, or a number up to 23", s.Facility, strings.Join(facilities, ", "))
		}
		s.facility = n
	}
	if s.Hostname == "" {
		s.Hostname, _ = os.Hostname()
	}
	if s.AppName == "" && len(os.Args) > 0 {
		s.AppName = filepath.Base(os.Args[0])
	}
	if s.ProcID == "" {
		s.ProcID = strconv.Itoa(os.Getpid())
	}
	s.Hostname = field(s.Hostname, 255) // maximum lengths of RFC 5424 §6
	s.AppName = field(s.AppName, 48)
	s.ProcID = field(s.ProcID, 128)
	s.MsgID = field(s.MsgID, 32)
	return nil
}

// override sets fields from the query of the destination.
func (s *Config) override(q url.Values) error {
	for name, values := range q {
		// A parameter that occurs several times has its last value.
		value := values[len(values)-1]
		switch name {
		case "facility":
			s.Facility = value
		case "hostname":
			s.Hostname = value
		case "app":
			s.AppName = value
		case "procid":
			s.ProcID = value
		case "msgid":
			s.MsgID = value
		default:
			return fmt.Errorf("unknown parameter %q: want facility, hostname, app, procid or msgid", name)
		}
	}
	return nil
}

// field converts s to a header field of at most n characters (PRINTUSASCII). If s is empty, it
// returns "-".
func field(s string, n int) string {
	out := make([]byte, 0, min(len(s), n))
	for _, r := range s {
		if len(out) == n {
			break
		}
		if r <= ' ' || r > '~' {
			r = '_'
		}
		out = append(out, byte(r))
	}
	if len(out) == 0 {
		return "-"
	}
	return string(out)
}

// severity returns the numerical severity of RFC 5424 §6.2.1 for a level: debug 7, informational 6,
// notice 5 (INFO+2), warning 4, error 3, critical 2 (ERROR+4).
func severity(l slog.Level) int {
	switch {
	case l < slog.LevelInfo:
		return 7
	case l < slog.LevelInfo+2:
		return 6
	case l < slog.LevelWarn:
		return 5
	case l < slog.LevelError:
		return 4
	case l < slog.LevelError+4:
		return 3
	default:
		return 2
	}
}

// stamp is the format of TIMESTAMP in RFC 5424 §6.2.3, which allows at most six decimals.
const stamp = "2006-01-02T15:04:05.000000Z"

// message appends rec as a SYSLOG-MSG of RFC 5424 §6, version 1, without structured data. MSG is
// the record without its newline. A binary record is converted to JSON.
func (s *Config) message(dst []byte, c batch.Codec, rec *batch.Record) []byte {
	dst = append(dst, '<')
	dst = strconv.AppendInt(dst, int64(s.facility*8+severity(rec.Level)), 10)
	dst = append(dst, ">1 "...)
	if rec.Time == 0 {
		dst = append(dst, '-')
	} else {
		dst = time.Unix(0, rec.Time).UTC().AppendFormat(dst, stamp)
	}
	for _, f := range [...]string{s.Hostname, s.AppName, s.ProcID, s.MsgID} {
		dst = append(dst, ' ')
		dst = append(dst, f...)
	}
	// "-" means that the message has no structured data.
	dst = append(dst, " - "...)
	if textual(c) {
		return append(dst, trimNewline(rec.Data)...)
	}
	return c.AppendJSON(dst, rec.Data, rec.Meta)
}

// trimNewline returns p without a newline at its end.
func trimNewline(p []byte) []byte {
	if n := len(p); n > 0 && p[n-1] == '\n' {
		p = p[:n-1]
	}
	return p
}

// textual reports whether records of a codec are text: raw bytes (nil), lines, JSON or logfmt.
func textual(c batch.Codec) bool { return c == nil || textualType(c.ContentType()) }

// textualType reports whether records with a content type are text.
func textualType(contentType string) bool {
	return contentType == "" || strings.HasPrefix(contentType, "text/") ||
		strings.Contains(contentType, "json") || strings.HasSuffix(contentType, "/logfmt")
}
