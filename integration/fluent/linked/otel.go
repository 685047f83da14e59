//go:build otel

package main

import (
	"context"

	"github.com/open-telemetry/opentelemetry-collector-contrib/receiver/fluentforwardreceiver"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/consumer/consumertest"
	"go.opentelemetry.io/collector/receiver/receivertest"
)

func init() {
	post["otel"] = func(string) error { // a receiver, which posts nothing
		f := fluentforwardreceiver.NewFactory()
		cfg := f.CreateDefaultConfig().(*fluentforwardreceiver.Config)
		cfg.ListenAddress = "127.0.0.1:0"
		r, err := f.CreateLogs(context.Background(), receivertest.NewNopSettings(f.Type()), cfg, new(consumertest.LogsSink))
		if err != nil {
			return err
		}
		if err := r.Start(context.Background(), componenttest.NewNopHost()); err != nil {
			return err
		}
		return r.Shutdown(context.Background())
	}
}
