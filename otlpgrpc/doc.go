// Package otlpgrpc sends records to an OpenTelemetry receiver over gRPC. It is a module of its
// own because of what gRPC needs; package otlp, over HTTP, needs nothing.
//
//	log, err := forebay.New(otlpgrpc.To("http://localhost:4317", otlp.Resource("service.name", "shop")))
//
// Records, requests and options are those of package otlp. What a receiver answers means:
//
//	OK                                            taken; partial success as in package otlp
//	Unavailable, Aborted, OutOfRange, DataLoss    tried again, after RetryInfo
//	Canceled, DeadlineExceeded                    tried again: nobody knows whether it was taken
//	ResourceExhausted                             tried again, after RetryInfo; a message larger
//	                                              than the receiver's limit: smaller
//	InvalidArgument                               the record at fault is searched, as a 400
//	Internal, Unknown                             tried again
//	Unauthenticated, PermissionDenied, all else   held, with an alarm
//	a status of HTTP, from a proxy                as in package otlp, but for Retry-After, which gRPC hides
//
// Errors, and dead letters, have the status of HTTP that means the same, and the code of gRPC
// with its words behind it.
package otlpgrpc
