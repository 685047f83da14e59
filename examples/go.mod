module github.com/forebay-log/forebay/examples

go 1.26.0

require (
	github.com/forebay-log/forebay v0.0.0
	github.com/forebay-log/forebay/adapters/zap v0.0.0
	github.com/golang/snappy v1.0.0
	go.uber.org/goleak v1.3.0
	go.uber.org/zap v1.28.0
	gopkg.in/natefinch/lumberjack.v2 v2.2.1
)

require (
	github.com/gofrs/flock v0.13.1 // indirect
	go.uber.org/multierr v1.10.0 // indirect
	golang.org/x/sys v0.49.0 // indirect
)

replace github.com/forebay-log/forebay => ../

replace github.com/forebay-log/forebay/adapters/zap => ../adapters/zap
