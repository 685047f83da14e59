package encode

// timeCache remembers the last formatted second, so that records within one
// second cost a copy and nine digits. Owned by a Record.
type timeCache struct{}
