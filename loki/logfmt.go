package loki

import (
	"log/slog"

	"github.com/forebay-log/forebay/encode"
	"github.com/forebay-log/forebay/internal/jsontext"
	"github.com/forebay-log/forebay/internal/values"
)

// newLogfmt returns the encoder of lines for Line.Body "logfmt". Unlike encode.Logfmt, it writes
// values like in labels and metadata, and adds "_" to a duplicate key, so that keys are unique. The
// parameter levelKey is the key of the level, or "" if the level is a label. If levelKey equals the
// key of the message, "_" is added to it. The parameter errors is Line.Errors.
func newLogfmt(k keys, levelKey, errors string, levels *[len(levelNames)]string, v *values.Values) encode.Encoder {
	if levelKey == "" {
		levelKey = "-"
	} else {
		for jsontext.LogfmtKey(levelKey) == jsontext.LogfmtKey(k.message) {
			levelKey = k.alternative(levelKey)
		}
	}
	labels := &values.Labels{Values: v, Rename: k.alternative}
	if *levels != levelNames {
		labels.Level = func(l slog.Level) string { return levels[values.LevelIndex(l)] }
	}
	e := encode.Logfmt(&encode.Options{TimeKey: "-", LevelKey: levelKey, MessageKey: k.message, Level: "lower", Errors: errors})
	return e.(interface {
		WithLabels(*values.Labels) encode.Encoder
	}).WithLabels(labels)
}
