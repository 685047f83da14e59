package firstcopies

import ()

// known lists the walks that fall today, by the name of their test.
var known = map[string]knownFall{}
