//go:build unix

package program

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// freePort returns a TCP port on which no process listens.
func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	return port
}

// Messages from rsyslog and logger, in all formats that they support, arrive with their time, level
// and fields.
func TestRealSyslogSenders(t *testing.T) {
	bin, err := exec.LookPath("rsyslogd")
	if err != nil {
		if bin, err = exec.LookPath("/usr/sbin/rsyslogd"); err != nil {
			t.Skip("SKIPPED: rsyslogd is not installed (Debian: apt-get install rsyslog)")
		}
	}
	tcp := freePort(t)
	r := startRun(t, "inputs:\n  all: {type: syslog, listen: \"127.0.0.1:"+tcp+"\"}\noutputs: {o: {to: \"file:DIR/out\", encode: json}}\n")
	r.await("the listener", func() bool { return strings.Count(r.messages.String(), "listening") == 2 })
	forward := func(name, options string) string {
		return fmt.Sprintf("if $programname == '%s' then action(type=\"omfwd\" target=\"127.0.0.1\" port=\"%s\" %s)\n", name, tcp, options)
	}
	conf := fmt.Sprintf(`global(workDirectory=%q)
module(load="imuxsock" SysSock.Use="off")
input(type="imuxsock" Socket=%q UseSysTimeStamp="off")
`, r.dir, filepath.Join(r.dir, "log")) +
		forward("counted", `protocol="tcp" TCP_Framing="octet-counted" template="RSYSLOG_SyslogProtocol23Format"`) +
		forward("lines", `protocol="tcp" TCP_Framing="traditional" template="RSYSLOG_ForwardFormat"`) +
		forward("old", `protocol="tcp" template="RSYSLOG_TraditionalForwardFormat"`) +
		forward("packets", `protocol="udp" template="RSYSLOG_SyslogProtocol23Format"`)
	file := filepath.Join(r.dir, "rsyslog.conf")
	if err := os.WriteFile(file, []byte(conf), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	daemon := exec.CommandContext(ctx, bin, "-n", "-f", file, "-i", filepath.Join(r.dir, "pid"))
	var log bytes.Buffer
	daemon.Stdout, daemon.Stderr = &log, &log
	if err := daemon.Start(); err != nil {
		t.Fatal(err)
	}
	defer daemon.Wait()
	defer cancel()
	var c net.Conn
	r.await("rsyslogd", func() bool {
		c, err = net.Dial("unixgram", filepath.Join(r.dir, "log"))
		return err == nil
	})
	defer c.Close()
	names := []string{"counted", "lines", "old", "packets"}
	const each = 50
	for i := range each {
		for _, name := range names {
			fmt.Fprintf(c, "<11>%s %s[4711]: message %d of \"%s\"", time.Now().Format(time.Stamp), name, i, name)
		}
	}
	if logger, err := exec.LookPath("logger"); err == nil {
		for _, args := range [][]string{{"--tcp", "--rfc5424"}, {"--udp", "--rfc5424"}, {"--tcp", "--rfc3164"}, {"--udp", "--rfc3164"}, {"--tcp", "--octet-count", "--rfc5424"}} {
			names = append(names, "logger")
			args = append(args, "-n", "127.0.0.1", "-P", tcp, "-t", "logger", "-p", "user.err", "message of logger")
			if out, err := exec.CommandContext(ctx, logger, args...).CombinedOutput(); err != nil {
				t.Fatalf("logger %v: %v: %s", args, err, out)
			}
		}
	} else {
		t.Log("NOT HAD: logger")
	}
	want := 4*each + len(names) - 4
	r.await("the messages", func() bool { return strings.Count(r.read("out"), "\n") >= want })
	next := map[string]int{}
	for line := range strings.Lines(r.read("out")) {
		var rec struct {
			Time            time.Time
			Level, Msg, Tag string
			Facility, Host  string
			ProcID          string `json:"procid"`
		}
		if err := json.Unmarshal([]byte(line), &rec); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		if age := time.Since(rec.Time); rec.Level != "ERROR" || rec.Facility != "user" || rec.Host == "" || age < -time.Hour || age > time.Hour {
			t.Errorf("%s", line)
		}
		if rec.Tag == "logger" {
			next["logger"]++
			if rec.Msg != "message of logger" {
				t.Errorf("%s", line)
			}
			continue
		}
		// If rsyslog forwards a message of RFC 3164, the message begins with the space after the
		// tag.
		if strings.TrimPrefix(rec.Msg, " ") != fmt.Sprintf("message %d of \"%s\"", next[rec.Tag], rec.Tag) || rec.ProcID != "4711" {
			t.Errorf("%s is not message %d", line, next[rec.Tag])
		}
		next[rec.Tag]++
	}
	if len(next) < 4 || next["counted"] != each || next["lines"] != each || next["old"] != each {
		t.Errorf("%v", next)
	}
	if messages, err := r.end(); err != nil {
		t.Errorf("%v\n%s", err, messages)
	}
}

// Python's SysLogHandler ends each message on a stream with NUL. A message arrives even if the
// connection remains open.
func TestPythonSyslogSender(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("SKIPPED: python3 is not installed")
	}
	tcp := freePort(t)
	r := startRun(t, "inputs:\n  tcp: {type: syslog, listen: \"tcp://127.0.0.1:"+tcp+"\"}\n  unix: {type: syslog, listen: \"unix:DIR/log\"}\n"+
		"outputs: {o: {to: \"file:DIR/out\", encode: json}}\n")
	r.await("the listeners", func() bool { return strings.Count(r.messages.String(), "listening") == 2 })
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	py := exec.CommandContext(ctx, python, "-c", `
import logging, logging.handlers, socket, sys
for name, address in (("tcp", ("127.0.0.1", int(sys.argv[1]))), ("unix", sys.argv[2])):
    h = logging.handlers.SysLogHandler(address=address, socktype=socket.SOCK_STREAM)
    h.ident = name + ": "
    log = logging.getLogger(name)
    log.addHandler(h)
    log.warning("one of %s", name)
    log.error("two")
print("sent", flush=True)
sys.stdin.read()
`, tcp, filepath.Join(r.dir, "log"))
	in, err := py.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	var messages bytes.Buffer
	py.Stderr = &messages
	if err := py.Start(); err != nil {
		t.Fatal(err)
	}
	r.await("the messages", func() bool { return strings.Count(r.read("out"), "\n") >= 4 })
	for _, name := range []string{"tcp", "unix"} {
		for _, want := range []string{`"level":"WARN","msg":"one of ` + name + `","tag":"` + name + `"`, `"level":"ERROR","msg":"two","tag":"` + name + `"`} {
			if out := r.read("out"); strings.Count(out, want) != 1 || strings.Count(out, "\n") != 4 {
				t.Errorf("not once %s in %s", want, out)
			}
		}
	}
	in.Close()
	if err := py.Wait(); err != nil {
		t.Errorf("%v: %s", err, messages.String())
	}
	if messages, err := r.end(); err != nil {
		t.Errorf("%v\n%s", err, messages)
	}
}
