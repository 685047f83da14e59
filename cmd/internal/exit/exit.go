// Package exit contains the exit codes of the program, and errors with an exit code.
//
//	return exit.Usage(fmt.Errorf("--count %d: use 1 or more", n))
package exit

import "errors"

// These are the exit codes of failures. The exit code of success is 0.
const (
	RuntimeCode = 1  // records were lost, or an input could not be read
	UsageCode   = 2  // the command line is wrong
	DropsCode   = 3  // records were dropped, and --fail-on-drop was given
	KeptCode    = 75 // the time limit expired, and the remaining records are stored for the next run (EX_TEMPFAIL of sysexits.h)
	ConfigCode  = 78 // a destination is invalid or cannot be opened (EX_CONFIG of sysexits.h)
)

// An Error is an error with an exit code.
type Error struct {
	Code int
	err  error // nil if the error was already reported
}

// With returns err with an exit code. err may be nil.
func With(code int, err error) error { return &Error{code, err} }

func (e *Error) Error() string {
	if e.err == nil {
		return ""
	}
	return e.err.Error()
}

func (e *Error) Unwrap() error { return e.err }

// Usage, Config and Runtime return err with UsageCode, ConfigCode and RuntimeCode.
func Usage(err error) error   { return With(UsageCode, err) }
func Config(err error) error  { return With(ConfigCode, err) }
func Runtime(err error) error { return With(RuntimeCode, err) }

// OrConfig returns err with ConfigCode, unless it already has an exit code.
func OrConfig(err error) error {
	if ce := (*Error)(nil); errors.As(err, &ce) {
		return err
	}
	return Config(err)
}

// Code returns the exit code for err. An error without a code comes from cobra and is a usage
// error.
func Code(err error) int {
	var ce *Error
	switch {
	case err == nil:
		return 0
	case errors.As(err, &ce):
		return ce.Code
	}
	return UsageCode
}
