package fluent

import (
	"context"
	"errors"
	"os"
	"slices"
	"time"
)

// Some servers close the connection after one message: npm's and fluentd's with
// keepalive off. If they begin with a HELO it says so; then a session takes one batch,
// and each of its messages has a connection of its own. Without HELO and without
// acknowledgements nothing tells that the server has closed until a later message is
// lost. So the first message of such a connection is on trial: what comes next waits
// for a moment, to see whether the connection ends.
//
// Without acknowledgements the end of a connection says the same however it comes:
// fluentd closes with RST, others with FIN. What was written before it counts as
// delivered, what could not be written whole does not.

// sendAlone sends the frames of j one after the other, each over a connection of its
// own, unless one survives its trial.
func (s *session) sendAlone(j *job, ph phase) {
	frames := j.lay.frames
	for i := range frames {
		if i > 0 {
			if err := s.reconnect(); err != nil {
				s.fail(err, []*job{j})
				return
			}
		}
		lives, err := s.exchange(j, i, ph)
		if err != nil {
			s.lose(err, []*job{j}, i > 0)
			return
		}
		if frames[i].acked = true; !s.c.c.NoAck {
			s.c.roster.took(s.conn.index, frames[i].bytes)
		}
		if lives {
			s.serve()
			if i+1 == len(frames) {
				s.answer(j)
				return
			}
			s.register(j, i+1) // it has only begun to serve
			s.write(j, i+1)
			return
		}
	}
	s.enter(leaving)
	s.c.roster.answered(s.conn.index)
	s.answer(j)
}

// reconnect replaces the connection by a new one.
func (s *session) reconnect() error {
	s.conn.close()
	nc, err := s.c.connect(s.l.Context())
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.conn = nc
	s.mu.Unlock()
	if s.l.Context().Err() != nil {
		nc.interrupt()
	}
	return nil
}

// exchange sends one frame of j and waits for what becomes of it. It reports whether
// the connection can be used further. An error means that the frame was not taken.
func (s *session) exchange(j *job, i int, ph phase) (lives bool, err error) {
	c, f, noAck := s.conn, &j.lay.frames[i], s.c.c.NoAck
	wait := s.c.c.AckTimeout
	if ph == trying {
		wait = s.c.roster.trial(c.index, c.dialled)
	}
	failed := s.put(j, i, i+1)
	until := time.Now().Add(wait)
	if failed != nil {
		until = lastWords(failed)
	}
	c.readUntil(until)
	acked := false
	for {
		err := c.answers(func(id chunkID) {
			acked = acked || id == f.id && !noAck
			s.c.counts.add(func(st *Stats) {
				if id == f.id && !noAck {
					st.Acks++
				} else {
					st.UnknownAcks++
				}
			})
		})
		if acked {
			return false, nil
		}
		if err == nil {
			if err = c.read(); err == nil {
				continue
			}
		}
		late := errors.Is(err, os.ErrDeadlineExceeded)
		ctx := s.l.Context()
		switch {
		case failed != nil && (late || isGone(err)):
			return false, failed
		case noAck && failed == nil && ctx.Err() != nil:
			return false, nil
		case ctx.Err() != nil:
			return false, context.Cause(ctx)
		case noAck && late:
			return ph == trying, nil
		case late:
			return false, noAckWithin(wait)
		case noAck && isGone(err):
			if ph == trying { // else it has said that it takes one message
				s.hungUp()
			}
			return false, nil
		}
		return false, err
	}
}

// put writes frames of j, and counts.
func (s *session) put(j *job, from, to int) error {
	n, err := s.conn.write(s.c.framer, j, from, to, s.c.c.WriteTimeout)
	s.c.counts.add(func(st *Stats) {
		st.Bytes += uint64(max(n, 0))
		if err == nil {
			st.Frames += uint64(to - from)
		}
	})
	return err
}

// lose ends the session, whose connection has ended because of err. jobs are those
// without an answer; acked: the server has taken something.
func (s *session) lose(err error, jobs []*job, acked bool) {
	if s.l.Context().Err() == nil {
		s.judge(err, jobs, acked)
	}
	s.fail(s.conn.lost(err, acked), jobs)
}

// fail ends the session because of err.
func (s *session) fail(err error, jobs []*job) {
	s.enter(over)
	if ctx := s.l.Context(); ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	for _, j := range jobs {
		if slices.ContainsFunc(j.lay.frames, func(f frame) bool { return f.acked }) {
			s.report(j, err)
		}
	}
	if len(jobs) > 0 {
		s.c.counts.add(func(st *Stats) { st.Lost, st.LastError = st.Lost+1, err.Error() })
	}
	s.end(err)
}

// judge notes what the end of a connection says about its server. jobs are those without
// an answer; acked: something was acknowledged.
func (s *session) judge(err error, jobs []*job, acked bool) {
	i, r := s.conn.index, s.c.roster
	if len(jobs) > 0 && !s.c.c.NoAck {
		for k := range jobs[0].lay.frames {
			if f := &jobs[0].lay.frames[k]; !f.acked {
				r.diedAt(i, f.bytes, f.to-f.from == 1, errors.Is(err, errNoAck))
				break
			}
		}
	}
	waiting := len(jobs) > 0
	if acked {
		r.answered(i)
	}
	switch {
	case isMute(err), waiting && !acked && !s.c.c.NoAck:
		r.silent(i, s.c.c.ReconnectMax)
	case s.c.c.NoAck && isGone(err):
		r.ended(i, time.Since(s.conn.opened))
		s.hungUp()
	}
}
