module github.com/forebay-log/forebay

go 1.26.0

require (
	github.com/gofrs/flock v0.13.1
	github.com/golang/snappy v1.0.0
	go.uber.org/goleak v1.3.0
	golang.org/x/sys v0.49.0
	pgregory.net/rapid v1.3.0
)
