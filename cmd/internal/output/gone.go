package output

// isGone reports whether the reader of the output is gone.
func (out *Output) isGone() bool {
	select {
	case <-out.Target.Gone: // nil: there is no reader
		return true
	default:
		return false
	}
}

// goneText returns the consequence for the lines of an output whose reader is gone.
func (out *Output) goneText() string {
	if to := out.OtherPlace(); to != "" {
		return "its lines now go to " + to
	}
	return "this output is closed"
}

// OtherPlace returns the place for the lines of an output whose reader is gone, or "" if there is
// none.
func (out *Output) OtherPlace() string {
	switch {
	case out.Fallback != nil:
		return "--fallback " + out.Fallback.To
	case out.Spec.Text("spool") != "":
		return "--spool " + out.Spec.Text("spool")
	case out.Spec.Text("dead-letter") != "":
		return "--dead-letter " + out.Spec.Text("dead-letter")
	}
	return ""
}
