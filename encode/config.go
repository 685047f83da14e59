package encode

import "github.com/forebay-log/forebay/internal/values"

// config holds the resolved options of an encoder.
type config struct {
	values.Style
	ownDuration bool // Options.Duration is set
	source      bool

	timeKey, levelKey, messageKey, sourceKey string // "-": left out

	fault error // unknown formats in the options
}

// omitted is the key of a built-in attribute that is left out.
const omitted = "-"
