package rivals

import "log/slog"

// AppendAttrs implements encode.AttrAppender, forebay's way to log objects.
func (u *User) AppendAttrs(dst []slog.Attr) []slog.Attr {
	return append(dst, slog.Int("id", u.ID), slog.String("name", u.Name), slog.Bool("admin", u.Admin))
}
