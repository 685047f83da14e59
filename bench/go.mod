module github.com/forebay-log/forebay/bench

go 1.26.0

require (
	github.com/HdrHistogram/hdrhistogram-go v1.4.0
	github.com/IBM/fluent-forward-go v0.4.0
	github.com/forebay-log/forebay v0.0.0
	github.com/golang/snappy v1.0.0
	github.com/phuslu/log v1.0.121
	github.com/rs/zerolog v1.35.1
	go.uber.org/zap v1.28.0
	go.uber.org/zap/exp v0.3.0
)

require (
	github.com/google/uuid v1.6.0 // indirect
	github.com/gorilla/websocket v1.4.2 // indirect
)

require (
	github.com/fluent/fluent-logger-golang v1.10.2
	github.com/gofrs/flock v0.13.1 // indirect
	github.com/mattn/go-colorable v0.1.14 // indirect
	github.com/mattn/go-isatty v0.0.20 // indirect
	github.com/philhofer/fwd v1.2.0 // indirect
	github.com/tinylib/msgp v1.6.5 // indirect
	go.uber.org/multierr v1.10.0 // indirect
	golang.org/x/sys v0.49.0 // indirect
)

replace github.com/forebay-log/forebay => ../
