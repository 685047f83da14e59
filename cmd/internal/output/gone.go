package output

// goneText returns the part of a message that tells where the lines of an output go after its
// reader has exited.
func (out *Output) goneText() string {
	if to := out.OtherPlace(); to != "" {
		return "its lines now go to " + to
	}
	return "this output is closed"
}

// OtherPlace returns the place to which the lines of an output go after its reader has exited, or
// "" if they are dropped.
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
