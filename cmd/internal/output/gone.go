package output

// isGone reports whether the reader of the output is gone.
func (out *Output) isGone() bool {
	select {
	case <-out.Target.Gone: // nil: it has none
		return true
	default:
		return false
	}
}

// goneText says what becomes of an output whose reader is gone.
func (out *Output) goneText() string {
	if to := out.OtherPlace(); to != "" {
		return "its lines now go to " + to
	}
	return "this output is closed"
}

// OtherPlace is where the lines of an output go whose reader is gone; "": nowhere.
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
