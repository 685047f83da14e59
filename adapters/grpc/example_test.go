package forebaygrpc_test

import (
	"os"

	"google.golang.org/grpc/grpclog"

	"github.com/forebay-log/forebay"
	forebaygrpc "github.com/forebay-log/forebay/adapters/grpc"
	"github.com/forebay-log/forebay/encode"
)

func ExampleNew() {
	form := encode.Logfmt(&encode.Options{TimeKey: "-"})
	log, err := forebay.New(forebay.Writer(os.Stdout, forebay.Encoder(form)))
	if err != nil {
		panic(err)
	}
	defer log.Close()

	grpclog.SetLoggerV2(forebaygrpc.New(log.Named("grpc")))
	defer grpclog.SetLoggerV2(forebaygrpc.New(nil))

	grpclog.Component("core").Warning("connection is lost")
	// Output:
	// level=WARN msg="connection is lost" logger=grpc component=core
}
