module github.com/forebay-log/forebay/adapters/zerolog

go 1.26.0

require (
	github.com/forebay-log/forebay v0.0.0
	github.com/rs/zerolog v1.35.0
	go.uber.org/goleak v1.3.0
)

require (
	github.com/gofrs/flock v0.13.1 // indirect
	github.com/mattn/go-colorable v0.1.14 // indirect
	github.com/mattn/go-isatty v0.0.20 // indirect
	golang.org/x/sys v0.49.0 // indirect
)

replace github.com/forebay-log/forebay => ../../
