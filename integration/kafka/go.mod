module github.com/forebay-log/forebay/integration/kafka

go 1.26.0

replace (
	github.com/forebay-log/forebay => ../../
	github.com/forebay-log/forebay/kafka => ../../kafka
)

require (
	github.com/forebay-log/forebay v0.0.0
	github.com/forebay-log/forebay/kafka v0.0.0
	github.com/twmb/franz-go v1.22.3
	github.com/twmb/franz-go/pkg/kadm v1.20.0
	github.com/twmb/franz-go/pkg/kmsg v1.15.1
)

require (
	github.com/gofrs/flock v0.13.1 // indirect
	github.com/klauspost/compress v1.20.3 // indirect
	github.com/pierrec/lz4/v4 v4.1.33 // indirect
	golang.org/x/sys v0.49.0 // indirect
)
