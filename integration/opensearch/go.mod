module github.com/forebay-log/forebay/integration/opensearch

go 1.26.0

replace github.com/forebay-log/forebay => ../../

require github.com/forebay-log/forebay v0.0.0

require (
	github.com/gofrs/flock v0.13.1 // indirect
	golang.org/x/sys v0.49.0 // indirect
)
