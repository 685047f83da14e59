module github.com/forebay-log/forebay/bench

go 1.26.0

require (
	github.com/HdrHistogram/hdrhistogram-go v1.4.0
	github.com/forebay-log/forebay v0.0.0
	github.com/phuslu/log v1.0.121
	github.com/rs/zerolog v1.35.0
	github.com/valyala/bytebufferpool v1.0.0
	go.uber.org/zap v1.28.0
	go.uber.org/zap/exp v0.3.0
)

require (
	github.com/mattn/go-colorable v0.1.14 // indirect
	github.com/mattn/go-isatty v0.0.20 // indirect
	go.uber.org/multierr v1.10.0 // indirect
	golang.org/x/sys v0.49.0 // indirect
)

replace github.com/forebay-log/forebay => ../
