package fluent

import (
	"context"
	"errors"
	"os"
	"time"
)

// This file sends messages to servers that close the connection after one message. Examples are the
// npm package @fluent-org/logger, and fluentd with keepalive off. If the server announces
// keepalive=false in its HELO, the session sends one batch, each message over a separate connection
// (phase oneBatch).
//
// Without HELO and without acknowledgements, the client would notice the closed connection only
// when a later message is lost. Therefore the session waits briefly after the first message to see
// whether the server closes the connection (phase probing).
//
// Without acknowledgements, a FIN and an RST have the same meaning: fluentd closes with RST, other
// servers with FIN. A message counts as delivered if it was written completely before the FIN or
// RST.

// sendAlone sends each frame of the job j over a separate connection. If the server keeps a
// connection open after a message, the remaining frames are sent over that connection. The
// parameter ph is probing or oneBatch. sendAlone reports the outcome of j, or ends the session.
func (s *session) sendAlone(j *job, ph phase) {
	frames := j.lay.frames
	for i := range frames {
		if i > 0 {
			if err := s.reconnect(); err != nil {
				s.fail(err, []*job{j})
				return
			}
		}
		keepsOpen, err := s.exchange(j, i, ph)
		if err != nil {
			s.lose(err, []*job{j}, i > 0)
			return
		}
		if frames[i].acked = true; !s.c.c.NoAck {
			s.c.roster.noteAccepted(s.conn.index, frames[i].bytes)
		}
		if keepsOpen {
			s.serve()
			if i+1 == len(frames) {
				s.answer(j)
				return
			}
			if s.register(j, i+1) {
				s.write(j, i+1)
			} // the reader has ended the session, and package deliver sends j again
			return
		}
	}
	s.enter(leaving)
	s.c.roster.recordAnswer(s.conn.index)
	s.answer(j)
}

// reconnect replaces the session's connection by a connection to the first reachable server, which
// may be a different server.
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
		nc.interrupt() // giveUp may have interrupted only the previous connection
	}
	return nil
}

// exchange sends frame i of the job j and waits until it is acknowledged. With NoAck, it waits
// until the server closes the connection or the probe time is over. The result keepsOpen reports
// whether the server keeps the connection open after the message. It is always false in phase
// oneBatch, where the server closes each connection. An error means that the frame was not
// accepted.
func (s *session) exchange(j *job, i int, ph phase) (keepsOpen bool, err error) {
	c, f, noAck := s.conn, &j.lay.frames[i], s.c.c.NoAck
	wait := s.c.c.AckTimeout
	if ph == probing {
		wait = s.c.roster.probeTime(c.index, c.dialled)
	}
	// Input is read even after a failed write: the server may have acknowledged the frame, or sent
	// a reason, before the connection ended.
	failed := s.put(j, i, i+1)
	until := time.Now().Add(wait)
	if failed != nil {
		until = readDeadlineAfter(failed)
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
		// The frame was written completely, so it counts as delivered.
		case noAck && failed == nil && ctx.Err() != nil:
			return false, nil
		case ctx.Err() != nil:
			return false, context.Cause(ctx)
		case noAck && late:
			return ph == probing, nil
		case late:
			return false, noAckWithin(wait)
		case noAck && isGone(err):
			if ph == probing { // in phase oneBatch the server closes every connection
				s.noteHangUp()
			}
			return false, nil
		}
		return false, err
	}
}
