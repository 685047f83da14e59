package encode

import "github.com/forebay-log/forebay/internal/values"

// config is what the options of the three forms come to.
type config struct {
	values.Style
	source bool

	timeKey, levelKey, messageKey, sourceKey string // "-": left out

	fault error // formats that are none
}

// omitted is the key of a built-in attribute that is left out.
const omitted = "-"
