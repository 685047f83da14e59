//go:build !noforebay

package main

import (
	"context"

	"github.com/forebay-log/forebay/fluent"
)

func init() {
	post["forebay"] = func(addr string) error {
		l, err := fluent.NewLogger(fluent.Config{Servers: []string{addr}, Sync: true})
		if err != nil {
			return err
		}
		if err := l.Post("forebay", map[string]any{"n": 1}); err != nil {
			return err
		}
		_, err = l.Close(context.Background())
		return err
	}
}
