package encode

import "github.com/forebay-log/forebay/internal/values"

// A config holds the resolved options of an encoder.
type config struct {
	values.Style
	ownDuration bool // Options.Duration is set
	source      bool // records have a source position

	// The keys of the built-in attributes. An attribute is not written if its key is the constant
	// omitted.
	timeKey, levelKey, messageKey, sourceKey string

	fault error // describes the unknown format names in the options, or nil
}

// omitted is the key that omits a built-in attribute; see Options.TimeKey.
const omitted = "-"
