package encode

import (
	"time"

	"github.com/forebay-log/forebay/internal/values"
)

// config is what the options of the three forms come to.
type config struct {
	values.Style
	source bool

	timeKey, levelKey, messageKey, sourceKey string // "-": left out
}

// omitted is the key of a built-in attribute that is left out.
const omitted = "-"

func key(name, def string) string {
	if name == "" {
		return def
	}
	return name
}

func (c *config) location(loc *time.Location, own bool) *time.Location {
	switch {
	case own:
		return nil
	case loc != nil:
		return loc
	case c.Form == values.FormConsole:
		return time.Local
	}
	return time.UTC
}
