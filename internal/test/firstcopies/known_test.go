package firstcopies

import ()

// known maps the name of a test to the defect that its walk finds at present.
var known = map[string]knownDefect{}
