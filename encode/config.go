package encode

import "github.com/forebay-log/forebay/internal/values"

// A config holds the resolved options of an encoder.
type config struct {
	values.Style
	ownDuration bool // Options.Duration is set
	source      bool // records have a source position

	timeKey, levelKey, messageKey, sourceKey string // omitted: the attribute is not written

	fault error // names the unknown formats in the options; nil if there are none
}

// omitted is the key of a built-in attribute that is left out.
const omitted = "-"
