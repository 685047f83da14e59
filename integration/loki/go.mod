module github.com/forebay-log/forebay/integration/loki

go 1.26.0

require (
	github.com/forebay-log/forebay v0.0.0
	github.com/klauspost/compress v1.20.3
	google.golang.org/protobuf v1.36.10
)

require (
	github.com/gofrs/flock v0.13.1 // indirect
	github.com/golang/snappy v1.0.0 // indirect
	golang.org/x/sys v0.49.0 // indirect
)

replace github.com/forebay-log/forebay => ../../
