package output

// goneText returns a part of a message: where the lines of the output go after its reader has
// exited.
func (out *Output) goneText() string {
	if to := out.OtherPlace(); to != "" {
		return "its lines now go to " + to
	}
	return "this output is closed"
}

// OtherPlace returns where the lines of the output go after its reader has exited. If they are
// dropped, it returns "".
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
