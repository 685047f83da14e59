module github.com/forebay-log/forebay/compress

go 1.26.0

require (
	github.com/forebay-log/forebay v0.0.0
	github.com/klauspost/compress v1.20.3
	go.uber.org/goleak v1.3.0
)

require (
	github.com/gofrs/flock v0.13.1 // indirect
	golang.org/x/sys v0.49.0 // indirect
)

replace github.com/forebay-log/forebay => ../
