package otlpgrpc_test

import (
	"fmt"

	"github.com/forebay-log/forebay"
	"github.com/forebay-log/forebay/otlp"
	"github.com/forebay-log/forebay/otlpgrpc"
)

func ExampleTo() {
	log, err := forebay.New(otlpgrpc.To("http://localhost:4317", otlp.Resource("service.name", "shop")))
	if err != nil {
		fmt.Println(err)
		return
	}
	log.Close()
	// Output:
}
