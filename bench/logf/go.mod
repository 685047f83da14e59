module github.com/forebay-log/forebay/bench/logf

go 1.26.0

require (
	github.com/forebay-log/forebay v0.0.0
	github.com/forebay-log/forebay/bench v0.0.0
)

require (
	github.com/DeRuina/timberjack v1.4.9 // indirect
	github.com/gofrs/flock v0.13.1 // indirect
	github.com/klauspost/compress v1.20.3 // indirect
	github.com/mattn/go-colorable v0.1.14 // indirect
	github.com/mattn/go-isatty v0.0.20 // indirect
	github.com/phuslu/log v1.0.121 // indirect
	github.com/rs/zerolog v1.35.1 // indirect
	go.uber.org/multierr v1.10.0 // indirect
	go.uber.org/zap v1.28.0 // indirect
	go.uber.org/zap/exp v0.3.0 // indirect
	golang.org/x/sys v0.49.0 // indirect
)

replace github.com/forebay-log/forebay => ../../

replace github.com/forebay-log/forebay/bench => ../
