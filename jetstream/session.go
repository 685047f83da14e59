package jetstream

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/forebay-log/forebay/batch"
	"github.com/forebay-log/forebay/dedup"
	"github.com/forebay-log/forebay/deliver"
	"github.com/forebay-log/forebay/internal/pattern"
)

// A session is one connection. Send numbers messages from 0; the server answers message n on the
// reply subject that ends with n. Answers arrive in any order, on a goroutine of nats.go, which
// calls the method answer.
//
// With Config.Sole, each message contains the sequence number of the previous message in the stream
// (field last). The server rejects the message if a different message is the last one in the
// stream. If last is unknown, one message is sent alone: Send waits for its answer, which contains
// its sequence number.
type session struct {
	d    *Driver
	life deliver.Life
	conn *nats.Conn
	wire *wire

	// Only Send uses the following fields.
	fill  pattern.Filler
	buf   []byte   // subject of the current record
	msg   nats.Msg // reused, because nats.go copies it
	inbox string   // the reply subject of message n is inbox + n
	// last is the sequence number of the previous message in the stream; 0: unknown. It is used
	// with Sole.
	last uint64
	// soleAnswer receives the answer to a message that is sent alone. It is used with Sole, and its
	// capacity is 1.
	soleAnswer chan outcome

	// connClosed is closed when the connection is closed and no further answers arrive.
	connClosed chan struct{}

	mu            sync.Mutex  // guards the fields below; no other lock is acquired while it is held
	sent          uint64      // number of messages of all batches so far
	flights       []*flight   // batches without an answer, oldest first
	progress      time.Time   // time of the last answer, or start of the oldest batch
	progressTimer *time.Timer // calls checkProgress
	first         uint64      // ticket of the first record to send again, valid if broken is set
	broken        bool        // some records must be sent again, so last is unknown
	// alone is 1 + the number of the message whose answer Send awaits, with Config.Sole. It is 0
	// if Send awaits none.
	alone uint64
}

// A flight is a batch in flight. session.mu guards its fields.
type flight struct {
	b       *batch.Batch
	first   uint64       // number of the message of record 0
	got     []bool       // got[i] reports whether record i is answered
	waits   int          // number of messages without an answer
	sending bool         // Send is still passing messages to nats.go
	open    []int        // indexes of records to send again
	refused []int        // indexes of refused records
	why     error        // reason why the records in open must be sent again
	refusal error        // reason for refusing the records in refused
	advice  batch.Advice // advice for the records in open
}

// Names of headers that the server reads; see https://docs.nats.io/nats-concepts/jetstream/headers.
const (
	headerID       = "Nats-Msg-Id"
	headerStream   = "Nats-Expected-Stream"
	headerPrevious = "Nats-Expected-Last-Sequence"
)

// unknown replaces a missing or empty field in a subject.
const unknown = "unknown"

// newFiller returns a Filler for subjects.
func newFiller() pattern.Filler { return pattern.Filler{Clean: clean, Missing: unknown} }

// newSession returns a session whose connection is not yet open.
func newSession(d *Driver, l deliver.Life) *session {
	s := &session{d: d, life: l, wire: newWire(l.Context(), d.c.DialTimeout), connClosed: make(chan struct{}), soleAnswer: make(chan outcome, 1)}
	s.fill = newFiller()
	s.msg.Header = nats.Header{}
	if d.c.Stream != "" {
		s.msg.Header[headerStream] = []string{d.c.Stream}
	}
	return s
}

// begin subscribes to the answers on conn and starts the timer that calls checkProgress. If begin
// fails, it closes the connection.
func (s *session) begin(conn *nats.Conn) error {
	s.conn = conn
	s.inbox = conn.NewInbox() + "."
	sub, err := conn.Subscribe(s.inbox+"*", s.answer)
	if err == nil {
		// The subscription has no limit, because the answers to all messages in flight must be
		// accepted.
		err = sub.SetPendingLimits(-1, -1)
	}
	if err != nil {
		s.wire.closeAll()
		conn.Close()
		<-s.connClosed
		return err
	}
	s.mu.Lock()
	s.progressTimer = time.AfterFunc(s.d.c.AckTimeout, s.checkProgress)
	s.mu.Unlock()
	return nil
}

// Send passes one message for each record to nats.go. Without Config.Sole, it does not wait for
// answers. It implements [deliver.Session].
func (s *session) Send(b *batch.Batch) error {
	f := &flight{b: b, got: make([]bool, b.Len()), waits: b.Len(), sending: true}
	s.mu.Lock()
	if s.broken && (len(s.flights) > 0 || b.First() > s.first) {
		// According to an answer that the outlet has not read yet, earlier records must be sent
		// again. They must be stored before b.
		s.first = 1<<64 - 1
		s.mu.Unlock()
		s.life.Answer(b, batch.Outcome{Open: batch.All(), Why: s.wrap(errBehind)})
		return nil
	}
	if s.broken {
		s.broken, s.last = false, 0
	}
	f.first = s.sent
	s.sent += uint64(b.Len())
	if len(s.flights) == 0 {
		s.progress = time.Now()
	}
	s.flights = append(s.flights, f)
	s.mu.Unlock()
	// A record that cannot be sent is settled immediately, as if the server had answered.
	i := 0
	for _, rec := range b.All() {
		alone := s.d.c.Sole && s.last == 0
		if alone {
			s.mu.Lock()
			s.alone = f.first + uint64(i) + 1
			s.mu.Unlock()
		}
		if err := s.publish(b, &rec, f.first+uint64(i)); errors.Is(err, nats.ErrMaxPayload) {
			s.settle(f, i, outcome{refused: fmt.Errorf("jetstream: the record has %d bytes, the server accepts messages of %d", len(rec.Data), s.conn.MaxPayload())})
		} else if err != nil {
			s.settle(f, i, outcome{open: s.wrap(err)})
			if s.conn.IsClosed() {
				break // the method closed will end the session
			}
		}
		i++
		if alone && !s.awaitAnswer(f, i) {
			break
		}
	}
	s.mu.Lock()
	f.sending = false
	s.conclude()
	s.mu.Unlock()
	return nil
}

// awaitAnswer waits for the answer to the message of record i-1 of f, which was sent alone. A newly
// stored message is the last one in the stream, and its sequence number is known. After a
// duplicate, the sequence number stays unknown, and the next message is also sent alone.
// awaitAnswer returns false if no further message of f may be sent; the remaining records are then
// sent again later.
func (s *session) awaitAnswer(f *flight, i int) bool {
	var what outcome
	select {
	case what = <-s.soleAnswer:
	case <-s.life.Context().Done():
		return false
	}
	if what.open != nil {
		for ; i < len(f.got); i++ {
			s.settle(f, i, outcome{open: what.open, advice: what.advice})
		}
		return false
	}
	s.last = what.last
	return true
}

// publish passes the message of rec to nats.go, which writes it later. n is the number of the
// message.
func (s *session) publish(b *batch.Batch, rec *batch.Record, n uint64) error {
	subject, fixed := s.d.subject.Fixed()
	if !fixed {
		s.buf = s.fill.Append(s.buf[:0], &s.d.subject, b.Codec, rec)
		subject = string(s.buf)
	}
	m := &s.msg
	m.Subject = subject
	m.Reply = s.inbox + strconv.FormatUint(n, 10)
	m.Data = payload(b.Codec, rec)
	s.setHeaders(b, rec)
	err := s.conn.PublishMsg(m)
	if err == nil && s.last > 0 {
		s.last++
	}
	return err
}

// setHeaders sets the headers of s.msg for rec.
func (s *session) setHeaders(b *batch.Batch, rec *batch.Record) {
	if s.last == 0 {
		delete(s.msg.Header, headerPrevious)
	} else {
		set(s.msg.Header, headerPrevious, strconv.FormatUint(s.last, 10))
	}
	if b.Origin == ([16]byte{}) {
		delete(s.msg.Header, headerID)
		return
	}
	set(s.msg.Header, headerID, dedup.ID{Origin: b.Origin, Ticket: rec.Ticket}.String())
}

// set sets a header. It does not allocate if the header already has a value.
func set(h nats.Header, name, value string) {
	if v := h[name]; len(v) == 1 {
		v[0] = value
		return
	}
	h[name] = []string{value}
}

// payload returns the content of the message: the record without its newline. A record in a binary
// format is converted to JSON. The result may be memory of the batch.
func payload(c batch.Codec, rec *batch.Record) []byte {
	data := rec.Data
	if !pattern.IsText(c) {
		data = c.AppendJSON(nil, data, rec.Meta)
	}
	return bytes.TrimSuffix(data, []byte("\n"))
}

// An outcome is the result of sending one message. The zero value means that the message is stored.
type outcome struct {
	open, refused error
	advice        batch.Advice // advice for a record that must be sent again
	last          uint64       // sequence number of a newly stored message; 0 if unknown
}

// answer handles the answer to one message. nats.go calls it for one message at a time. The answer
// is ignored if the outcome of its batch is already reported.
func (s *session) answer(m *nats.Msg) {
	n, err := strconv.ParseUint(m.Subject[len(s.inbox):], 10, 64)
	if err != nil {
		return
	}
	// At most four batches are in flight, so a linear search is fast enough.
	what := s.read(m)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range s.flights {
		if n >= f.first && n-f.first < uint64(len(f.got)) {
			s.settleLocked(f, int(n-f.first), what)
			s.conclude()
			return
		}
	}
}

// settle calls settleLocked with s.mu held.
func (s *session) settle(f *flight, i int, what outcome) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.settleLocked(f, i, what)
}

// settleLocked sets the outcome of record i of f. Only the first outcome counts. The caller holds
// s.mu.
func (s *session) settleLocked(f *flight, i int, what outcome) {
	if f.got[i] {
		return
	}
	f.got[i] = true
	if s.alone == f.first+uint64(i)+1 {
		s.alone = 0
		s.soleAnswer <- what
	}
	f.waits--
	s.progress = time.Now()
	switch {
	case what.refused != nil:
		f.refused, f.refusal = append(f.refused, i), what.refused
	case what.open != nil:
		f.open = append(f.open, i)
		if f.why == nil || what.advice > f.advice {
			f.why, f.advice = what.open, what.advice
		}
	}
}

// conclude reports the outcome of each batch whose messages are all answered. The caller holds
// s.mu, so no other goroutine uses a batch after that.
func (s *session) conclude() {
	s.flights = slices.DeleteFunc(s.flights, func(f *flight) bool {
		if f.waits > 0 || f.sending {
			return false
		}
		slices.Sort(f.open)
		if len(f.open) > 0 {
			if first := f.b.At(f.open[0]).Ticket; !s.broken || first < s.first {
				s.first = first
			}
			s.broken = true
		}
		slices.Sort(f.refused)
		s.life.Answer(f.b, batch.Outcome{Open: batch.Of(f.open...), Why: f.why, Advice: f.advice, Refused: batch.Of(f.refused...), Refusal: f.refusal})
		return true
	})
}

// checkProgress ends the session if messages wait for an acknowledgement and the server has sent
// none for AckTimeout. progressTimer calls it.
func (s *session) checkProgress() {
	s.mu.Lock()
	waits, silence := 0, time.Since(s.progress)
	for _, f := range s.flights {
		waits += f.waits
	}
	// The next check is due when the time without an acknowledgement reaches AckTimeout.
	hangs := waits > 0 && silence >= s.d.c.AckTimeout
	next := s.d.c.AckTimeout
	if waits > 0 && !hangs {
		next -= silence
	}
	s.progressTimer.Reset(next)
	s.mu.Unlock()
	if hangs {
		s.life.End(fmt.Errorf("jetstream: %s has acknowledged none of %d messages for %s: %w", s.d.where(), waits, s.d.c.AckTimeout, batch.ErrUnanswered))
	}
}

// closed ends the session. nats.go calls it after either side has closed the connection.
func (s *session) closed(conn *nats.Conn) {
	err := conn.LastError()
	if err == nil {
		err = nats.ErrConnectionClosed
	}
	s.d.connected.Store(false)
	s.life.End(s.d.markFatal(s.wrap(err)))
	close(s.connClosed)
}

// reportError handles errors of nats.go that do not close the connection. It handles only a missing
// permission for the subject, because the server does not answer such a message, and ignores other
// errors. The error is fatal if all records have the same subject.
func (s *session) reportError(_ *nats.Conn, _ *nats.Subscription, err error) {
	if !errors.Is(err, nats.ErrPermissionViolation) {
		return
	}
	err = s.wrap(err)
	if _, fixed := s.d.subject.Fixed(); fixed {
		err = batch.Fatal(err)
	}
	s.life.End(err)
}

// wrap adds the addresses of the servers to err and removes secrets.
func (s *session) wrap(err error) error {
	return fmt.Errorf("jetstream: %s: %w", s.d.where(), s.d.hide(err))
}

// Close closes the connection; see [deliver.Session]. It first calls wire.closeAll to end a
// blocked write of nats.go, for which Conn.Close would wait.
func (s *session) Close() {
	s.mu.Lock()
	s.progressTimer.Stop()
	s.mu.Unlock()
	s.wire.closeAll()
	s.conn.Close()
	<-s.connClosed
	s.mu.Lock()
	s.flights = nil
	s.mu.Unlock()
}

// An ack is the answer of the server to a message. It is PubAck in
// https://docs.nats.io/reference/reference-protocols/nats_api_reference.
type ack struct {
	Stream    string `json:"stream"`
	Seq       uint64 `json:"seq"`
	Duplicate bool   `json:"duplicate"`
	Error     *struct {
		Code        int    `json:"code"`
		ErrCode     int    `json:"err_code"`
		Description string `json:"description"`
	} `json:"error"`
}

// Error codes of the server (err_code in errors.json of nats-server).
const (
	codeTooLarge       = 10054 // message size exceeds maximum allowed
	codeWrongStream    = 10060 // expected stream does not match
	codeSealed         = 10109 // invalid operation on sealed stream
	codeNotEnabled     = 10039 // JetStream is not enabled for the account
	codeNotEnabledHere = 10076 // JetStream is not enabled
)

// sequence returns the number after "seq" in an answer, or 0. It does not use encoding/json,
// because it must be fast: it is called for each message
// (docs/adr/0050-read-jetstream-acknowledgements-directly.md).
func sequence(answer []byte) (n uint64) {
	_, text, _ := bytes.Cut(answer, []byte(`"seq":`))
	for _, c := range bytes.TrimLeft(text, " ") {
		if c < '0' || c > '9' || n > 1<<60 {
			break
		}
		n = 10*n + uint64(c-'0')
	}
	return n
}

// errBehind is the reason why Send does not send a batch while records of an earlier batch must be
// sent again.
var errBehind = errors.New("an earlier message was not stored")

// errAnswer is the error for an answer that is neither a success nor an error.
var errAnswer = errors.New("the answer cannot be read")

// read returns the outcome of the message to which m is the answer. An answer without content and
// with status 503 means that no stream has the subject.
func (s *session) read(m *nats.Msg) outcome {
	if len(m.Data) == 0 && m.Header.Get("Status") == "503" {
		return outcome{open: s.wrap(errors.New("no stream accepts the subject now: create one, or wait until it has a leader"))}
	}
	// The most frequent answer is recognized without parsing JSON.
	if !bytes.Contains(m.Data, []byte(`"error"`)) && bytes.Contains(m.Data, []byte(`"seq":`)) {
		s.d.stored.Add(1)
		if bytes.Contains(m.Data, []byte(`"duplicate"`)) {
			s.d.duplicates.Add(1)
			return outcome{}
		}
		return outcome{last: sequence(m.Data)}
	}
	var a ack
	if err := json.Unmarshal(m.Data, &a); err != nil || a.Error == nil {
		return outcome{open: s.wrap(fmt.Errorf("%w: %.100q: %w", errAnswer, m.Data, batch.ErrUnanswered))}
	}
	err := s.wrap(fmt.Errorf("%.200s (%d)", a.Error.Description, a.Error.ErrCode))
	// The server refuses a record only because of its size. All other errors may be temporary: a
	// full stream, a stream without a leader, or an id that is being processed.
	switch a.Error.ErrCode {
	case codeTooLarge:
		return outcome{refused: err}
	case codeWrongStream, codeSealed, codeNotEnabled, codeNotEnabledHere:
		return outcome{open: err, advice: batch.Hold}
	}
	return outcome{open: err}
}
