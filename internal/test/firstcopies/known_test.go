package firstcopies

import ()

// known lists the defects that walks find at present, by the name of the test.
var known = map[string]knownDefect{}
