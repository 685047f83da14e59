// Package otlpgrpc sends records to an OpenTelemetry receiver over gRPC. It is a separate module
// because gRPC has many dependencies; package otlp sends over HTTP and has none.
//
//	log, err := forebay.New(otlpgrpc.To("http://localhost:4317", otlp.Resource("service.name", "shop")))
//
//	record ─▶ memory ─▶ otlp.Driver ─▶ gRPC ─▶ receiver
//	                        ▲                     │
//	                        └── records to retry ◀┘
//
// Records, requests and options are those of package otlp. The answers of a receiver have these
// effects:
//
//	OK                                            accepted; partial success as in package otlp
//	Unavailable, Aborted, OutOfRange, DataLoss    retried, after RetryInfo
//	Canceled, DeadlineExceeded                    retried: the records may have been accepted
//	ResourceExhausted                             retried, after RetryInfo; if the message is larger
//	                                              than the receiver's limit, with smaller messages
//	InvalidArgument                               the batch is searched for the invalid record, as
//	                                              after a 400 in package otlp
//	Internal, Unknown                             retried
//	Unauthenticated, PermissionDenied, all others held, with an event
//	an HTTP status, from a proxy                  as in package otlp, without Retry-After, which gRPC hides
//
// Errors and dead letters have the corresponding HTTP status, followed by the gRPC code and its
// message.
package otlpgrpc
