package program

import "errors"

// Exit codes. 0 is success.
const (
	exitRuntime = 1  // something went wrong while running: records were lost, or input could not be read
	exitUsage   = 2  // the command line is wrong
	exitDrops   = 3  // records were dropped, and --fail-on-drop was given
	exitKept    = 75 // the time was up, and the rest is kept for the next run (EX_TEMPFAIL of sysexits.h)
	exitConfig  = 78 // a destination is wrong or cannot be opened (EX_CONFIG of sysexits.h)
)

const exitHelp = `Exit codes:
  0   no record was lost, except records dropped by --when-full or --max-record
  1   records were lost, or standard input could not be read
  2   the command line is wrong
  3   a record was dropped, and --fail-on-drop was given
  75  --drain-timeout expired; undelivered records are kept in --spool or --crash-safe
  78  a destination is wrong or cannot be opened`

// A codeError is an error that decides the exit code.
type codeError struct {
	code int
	err  error // nil: everything was said already
}

func (e *codeError) Error() string {
	if e.err == nil {
		return ""
	}
	return e.err.Error()
}

func (e *codeError) Unwrap() error { return e.err }

func usageError(err error) error   { return &codeError{exitUsage, err} }
func configError(err error) error  { return &codeError{exitConfig, err} }
func runtimeError(err error) error { return &codeError{exitRuntime, err} }

// orConfigError is configError for an error that has no exit code of its own.
func orConfigError(err error) error {
	if ce := (*codeError)(nil); errors.As(err, &ce) {
		return err
	}
	return configError(err)
}

// codeOf returns the exit code for err. Errors without one come from cobra and
// are about the command line.
func codeOf(err error) int {
	var ce *codeError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &ce):
		return ce.code
	}
	return exitUsage
}
