package encode

import "github.com/forebay-log/forebay/internal/values"

// A config holds the resolved options of an encoder.
type config struct {
	values.Style
	ownDuration bool // Options.Duration is set
	source      bool // records have a source position

	timeKey, levelKey, messageKey, sourceKey string // an attribute with the key omitted is not written

	fault error // describes the unknown format names in the options, or nil
}

// omitted is the key that omits a built-in attribute; see Options.TimeKey.
const omitted = "-"
