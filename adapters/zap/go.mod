module github.com/forebay-log/forebay/adapters/zap

go 1.26.0

require (
	github.com/forebay-log/forebay v0.0.0
	go.uber.org/goleak v1.3.0
	go.uber.org/zap v1.28.0
)

require (
	github.com/gofrs/flock v0.13.1 // indirect
	go.uber.org/multierr v1.10.0 // indirect
	golang.org/x/sys v0.49.0 // indirect
)

replace github.com/forebay-log/forebay => ../../
