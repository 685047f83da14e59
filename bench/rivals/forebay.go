package rivals

import "log/slog"

// AppendAttrs implements encode.AttrAppender, the way to log objects with forebay.
func (u *User) AppendAttrs(dst []slog.Attr) []slog.Attr {
	return append(dst, slog.Int("id", u.ID), slog.String("name", u.Name), slog.Bool("admin", u.Admin))
}
