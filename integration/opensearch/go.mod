module github.com/forebay-log/forebay/integration/opensearch

go 1.26.0

replace github.com/forebay-log/forebay => ../../

require github.com/forebay-log/forebay v0.0.0

require (
	github.com/DeRuina/timberjack v1.4.9 // indirect
	github.com/gofrs/flock v0.13.1 // indirect
	github.com/klauspost/compress v1.20.3 // indirect
	golang.org/x/sys v0.49.0 // indirect
)
